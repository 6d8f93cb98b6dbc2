// What the suites share: the address of the broker, a network that can be cut, and topics that no other test uses.
import { createServer, connect as dial } from "node:net";
import { randomUUID } from "node:crypto";

export const url = process.env.FLEXIMQ_URL;
/** How often connections are cut. */
export const cuts = Number(process.env.FLEXIMQ_CUTS ?? 10);
export const quick = { first: 0.005, most: 0.05 };

export const newTopic = () => `t${randomUUID().slice(0, 8)}`;

export const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Wait until something holds. */
export async function until(holds) {
  for (let left = 60_000; !(await holds()); left -= 2) {
    if (left < 0) throw new Error("it took too long");
    await sleep(2);
  }
}

/** Forwards connections to the broker; `cut` ends all of them, and none is made while it `isDown`. */
export async function network() {
  const { hostname, port } = new URL(url);
  const open = new Set();
  const self = {
    isDown: false,
    cut() {
      for (const each of open) each.destroy();
    },
    close() {
      server.close();
      self.cut();
    },
  };
  const server = createServer((near) => {
    if (self.isDown) return near.destroy();
    const far = dial(Number(port), hostname);
    for (const [one, other] of [[near, far], [far, near]]) {
      open.add(one);
      one.setNoDelay(true);
      one.on("error", () => {});
      one.on("close", () => {
        open.delete(one);
        other.destroy();
      });
      one.pipe(other);
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  self.url = `ws://127.0.0.1:${server.address().port}/ws`;
  return self;
}
