import assert from "node:assert/strict";
import { test } from "node:test";
import { connect } from "../../js/src/index.js";
import { survive } from "./cutting.mjs";
import { cuts, network, newTopic } from "./surroundings.mjs";

test("nothing is lost and nothing comes twice on a durable topic while connections are cut", async () => {
  const between = await network();
  const { published, ...rest } = await survive({ connect, url: between.url, cut: between.cut, times: cuts, topic: newTopic() });
  between.close();
  assert.ok(published > cuts);
  assert.ok(rest.away >= cuts);
  assert.deepEqual({ ...rest, away: 0 }, { away: 0, lost: 0, twice: 0, disordered: 0 });
});
