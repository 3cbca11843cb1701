import { defineConfig } from "vite";
import solid from "vite-plugin-solid";

export default defineConfig({
  base: "/ui/",
  plugins: [solid()],
  build: {
    outDir: "../src/shoal/dashboard/static",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // the page's security policy allows no data: addresses
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
  worker: { format: "es" },
  test: { include: ["test/**/*.test.ts"], environment: "node" },
} as Parameters<typeof defineConfig>[0]);
