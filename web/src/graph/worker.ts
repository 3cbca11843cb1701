import { layout, type LayoutAsk } from "./layout";

self.onmessage = (event: MessageEvent<LayoutAsk>) => postMessage(layout(event.data));
