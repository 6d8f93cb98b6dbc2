// Publishes to a durable topic and reads it over connections that are cut again and again; also run by a page.

const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/**
 * Return how many messages were published, lost, delivered twice, and delivered out of order.
 *
 * @param connect makes a client of a URL and options
 * @param cut cuts all connections
 */
export async function survive({ connect, url, options, cut, times, topic }) {
  const quick = { reconnect: { first: 0.005, most: 0.05 }, ...options };
  const [publisher, subscriber] = [await connect(url, { repeat: true, ...quick }), await connect(url, quick)];
  const got = [];
  let away = 0;
  subscriber.status(({ state }) => (away += state === "away"));
  await subscriber.subscribe(topic, { from: "first" }, (message) => got.push(message.value));
  let published = 0;
  let isOver = false;
  const publishing = (async () => {
    while (!isOver) {
      for (let left = 5; left--; ) await publisher.publish(topic, published++);
      // On a slow machine there would be more and more to repeat.
      do await sleep(4);
      while (!isOver && published - got.length > 500);
    }
  })();
  while (away < times) {
    await sleep(Math.random() * 10);
    await cut();
    // Most cuts meet a client that has joined; some meet one that is about to.
    for (let left = 2000; left-- && Math.random() < 0.999 && !(subscriber.state === "joined" && publisher.state === "joined"); ) await sleep(1);
  }
  isOver = true;
  await publishing;
  await publisher.flush({ timeout: 120 });
  for (let left = 6000; got.length < published && left--; ) await sleep(10);
  await subscriber.flush({ timeout: 120 });
  const seen = new Set(got);
  const result = {
    published, away,
    lost: published - seen.size,
    twice: got.length - seen.size,
    disordered: got.filter((value, place) => place && value < got[place - 1]).length,
  };
  await Promise.all([publisher.close(), subscriber.close()]);
  return result;
}
