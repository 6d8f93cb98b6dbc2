// Builds the file that the broker serves: node build.js [FOLDER]. Names that begin with _ are not part of the interface,
// and get short ones.
import { build } from "esbuild";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
await build({
  absWorkingDir: here,
  entryPoints: { fleximq: "src/index.js" },
  outdir: process.argv[2] ?? "../fleximq/web/static",
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  mangleProps: /^_[a-z]/,
  external: ["ws"],
  legalComments: "none",
});
