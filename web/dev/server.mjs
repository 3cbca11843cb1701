// A stand-in for the control plane, for work on the page alone: the build in ../src/shoal/dashboard/static, with the same
// policy, over a made-up fleet. Not shipped. node dev/server.mjs [--clusters 4] [--apps 6] [--changes 5] [--port 7500] [--trouble]
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { extname, join } from "node:path";
import { World } from "./world.mjs";

const option = (name, otherwise) => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? otherwise : Number(process.argv[at + 1]);
};
const world = new World({ clusters: option("clusters", 4), apps: option("apps", 6), trouble: process.argv.includes("--trouble") });
const STATIC = join(import.meta.dirname, "../../src/shoal/dashboard/static");
const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; worker-src 'self'; " +
  "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const streams = new Map();
let role = process.argv.includes("--viewer") ? "viewer" : "admin";
let out = false;

function json(response, value, status = 200) {
  response.writeHead(status, { "Content-Type": "application/json" }).end(value === undefined ? "" : JSON.stringify(value));
}
const bodyOf = async (request) => {
  let text = "";
  for await (const part of request) text += part;
  try {
    return JSON.parse(text || "{}");
  } catch {
    return text;
  }
};

function openTopics(stream, opened) {
  for (const { id, topic, ...parameters } of opened) {
    stream.topics.set(id, { topic, parameters });
    const answer = world.topic(topic, parameters);
    stream.send(answer.error ? { id, error: answer.error } : { id, reset: true, rows: answer, at: Date.now() });
  }
}

const server = createServer(async (request, response) => {
  const address = new URL(request.url, "http://x");
  const path = address.pathname;
  response.setHeader("Content-Security-Policy", POLICY);
  response.setHeader("X-Content-Type-Options", "nosniff");
  if (path === "/") return response.writeHead(307, { Location: "/ui/" }).end();
  if (path === "/dev/cut") {
    for (const stream of streams.values()) stream.response.destroy();
    out = address.searchParams.has("out");
    return json(response, {});
  }
  if (path === "/ui/login") {
    const { code, token } = await bodyOf(request);
    if (code === "good" || token === "good") return response.writeHead(204).end();
    return json(response, { error: { code: "Unauthorized", message: "refused", details: [{ field: "code", message: "This link was used already. Run `shoal up` again, or sign in with a token." }] } }, 401);
  }
  if (path === "/ui/session") {
    return json(response, {
      user: role === "admin" ? "admin" : "ana", role, workspace: "default", workspaces: ["default", "shop"], operator: role === "admin", version: "0.1.0",
      may: role === "viewer" ? ["read"] : ["read", "apply", "delete", "move", "rollout", "cascade", "manage", "operate"],
      navigator: true, now: Date.now(), expiresAt: Date.now() + 36e5, command: "shoal", context: "",
    });
  }
  if (path === "/ui/stream" && out) return json(response, {}, 503);
  if (path === "/ui/stream") {
    const id = Math.random().toString(36).slice(2);
    response.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
    const stream = { response, topics: new Map(), send: (message) => response.write(`data: ${JSON.stringify(message)}\n\n`) };
    streams.set(id, stream);
    stream.send({ stream: id, now: Date.now() });
    openTopics(stream, JSON.parse(address.searchParams.get("open") ?? "[]"));
    request.on("close", () => streams.delete(id));
    return;
  }
  if (path.startsWith("/ui/stream/")) {
    const stream = streams.get(path.split("/").at(-1));
    if (!stream) return json(response, { error: { code: "NotFound" } }, 404);
    const { open = [], close = [] } = await bodyOf(request);
    for (const id of close) stream.topics.delete(id);
    openTopics(stream, open);
    return response.writeHead(204).end();
  }
  if (path.startsWith("/api/v1/") || path.startsWith("/ui/navigator/")) {
    const answer = world.rest(request.method, path, address.searchParams, await bodyOf(request));
    if (answer instanceof Response || typeof answer === "string") return response.writeHead(200, { "Content-Type": "text/plain" }).end(answer);
    if (answer === undefined) return json(response, { error: { code: "NotFound", message: `path ${path} not found`, details: [] } }, 404);
    return json(response, answer);
  }
  if (path.startsWith("/ui")) {
    const name = extname(path) ? path.slice(4) : "index.html";
    try {
      const content = await readFile(join(STATIC, name));
      return response.writeHead(200, { "Content-Type": TYPES[extname(name)] ?? "application/octet-stream" }).end(content);
    } catch {
      return json(response, {}, 404);
    }
  }
  json(response, {}, 404);
});

setInterval(() => {
  for (const stream of streams.values()) stream.send({ beat: Date.now() });
}, 5000).unref();
const changes = option("changes", 5);
setInterval(() => {
  const changed = world.step();
  for (const stream of streams.values()) {
    for (const [id, { topic, parameters }] of stream.topics) {
      const set = changed(topic, parameters);
      if (set) stream.send({ id, ...set, at: Date.now() });
    }
  }
}, 1000 / Math.max(1, changes)).unref();
server.listen(option("port", 7500), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/ui/`));
