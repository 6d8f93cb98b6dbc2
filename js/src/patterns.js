/**
 * Topics with wildcards: levels are separated by `.` or `/`, `*` is any one level, a last `#` any number of them.
 *
 * @module
 */

/** @param {string} topic */
const levelsOf = (topic) => topic.split(/[./]/);

/**
 * Return a function that says whether a topic matches. Topics that begin with `$` match no wildcard at their first level.
 *
 * @param {string} topic
 * @returns {(topic: string) => boolean}
 */
export function matcher(topic) {
  const levels = levelsOf(topic);
  const isOpen = levels.at(-1) === "#";
  if (!isOpen && !levels.includes("*")) return (other) => other === topic;
  const isWild = levels[0] === "*" || topic === "#";
  // The separator before # is a part of what it stands for.
  const parts = levels.slice(0, isOpen ? -1 : undefined).map((level) => (level === "*" ? "[^./]*" : level.replace(/\W/g, "\\$&")));
  const wild = new RegExp(`^${isWild ? "(?!\\$)" : ""}${parts.join("[./]")}${isOpen ? (parts[0] ? "([./].*)?" : ".*") : ""}$`, "s");
  return (other) => wild.test(other);
}

/**
 * Return whether there may be a topic that matches both.
 *
 * @param {string} one
 * @param {string} other
 */
export function overlap(one, other) {
  /** @type {(one: string[], other: string[]) => boolean} */
  const meet = ([a, ...x], [b, ...y]) =>
    [a + x, b + y].includes("#") || (a && b ? (a === "*" || b === "*" || a === b) && meet(x, y) : a === b);
  return meet(levelsOf(one), levelsOf(other));
}
