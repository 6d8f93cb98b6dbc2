/**
 * Topics with wildcards: levels are separated by `.` or `/`, `*` is any one level, a last `#` any number of them.
 *
 * @module
 */

/** @param {string} topic */
const levelsOf = (topic) => topic.split(/[./]/);

/** @param {string} topic */
const isPattern = (topic) => levelsOf(topic).some((level, place, all) => level === "*" || (level === "#" && place === all.length - 1));

/**
 * Return a function that says whether a topic matches. Topics that begin with `$` match no wildcard at their first level.
 *
 * @param {string} topic
 * @returns {(topic: string) => boolean}
 */
export function matcher(topic) {
  if (!isPattern(topic)) return (other) => other === topic;
  const levels = levelsOf(topic);
  const isOpen = levels[levels.length - 1] === "#" && levels.pop();
  const parts = levels.map((level) => (level === "*" ? "[^./]*" : level.replace(/\W/g, "\\$&")));
  const rest = isOpen ? (parts.length ? "([./].*)?" : ".*") : "";
  const wild = new RegExp(`^${levels[0] === "*" || !parts.length ? "(?!\\$)" : ""}${parts.join("[./]")}${rest}$`, "s");
  return (other) => wild.test(other);
}

/**
 * Return whether there may be a topic that matches both.
 *
 * @param {string} one
 * @param {string} other
 */
export function overlap(one, other) {
  if (!isPattern(one) && !isPattern(other)) return one === other;
  /** @type {(one: string[], other: string[]) => boolean} */
  const meet = ([a, ...x], [b, ...y]) =>
    (a === "#" && !x.length) ||
    (b === "#" && !y.length) ||
    (a === undefined || b === undefined ? a === b : (a === "*" || b === "*" || a === b) && meet(x, y));
  return meet(levelsOf(one), levelsOf(other));
}
