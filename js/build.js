// Builds the file that the broker serves: node build.js [FOLDER]. Names that begin with _ are not part of the interface;
// esbuild makes the most frequent ones the shortest, and terser saves another twentieth.
import { build } from "esbuild";
import { mkdir, writeFile } from "node:fs/promises";
import { minify } from "terser";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const { outputFiles } = await build({
  absWorkingDir: here,
  entryPoints: ["src/index.js"],
  bundle: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  mangleProps: /^_[a-z]/,
  external: ["ws"],
  write: false,
});
const { code } = await minify(outputFiles[0].text, {
  module: true,
  compress: { passes: 4, ecma: 2022, unsafe: true, unsafe_arrows: true, pure_getters: true },
});
const folder = new URL(`${process.argv[2] ?? "../fleximq/web/static"}/`, `file://${here}`);
await mkdir(folder, { recursive: true });
await writeFile(new URL("fleximq.js", folder), `${code}\n`);
