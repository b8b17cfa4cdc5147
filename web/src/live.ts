// One stream of events for the tab: an event for each interval that ends.
import { effect, signal } from "@preact/signals";
import { address } from "./api.ts";
import { loads } from "./data.ts";
import type { Answer } from "./types.ts";

// interval is the newest that the agent reported. A new one waits while somebody points at what is shown, and until
// what the last one asked for is there: pages ask again for each, and an agent may end two in a second.
export const interval = signal<Answer | null>(null);
export const waiting = signal(0); // intervals that came while somebody pointed
export const connected = signal<boolean | null>(null); // null: nobody follows
export const following = signal(true);

const leastGap = 500; // milliseconds between two that are shown

let source: EventSource | null = null;
let shown = 0; // when
let timer = 0;
const paused = signal(false);
const held = signal<Answer | null>(null);

const path = address("/api/v1/live", { by: "family", limit: 2 });

function open(): void {
	if (source || document.hidden || !following.value) return;
	source = new EventSource(path);
	source.addEventListener("open", () => { connected.value = true; });
	source.addEventListener("error", () => { connected.value = false; }); // the browser tries again, and resumes
	source.addEventListener("flows", (e) => {
		connected.value = true;
		held.value = JSON.parse((e as MessageEvent<string>).data) as Answer;
		if (paused.value) waiting.value++;
	});
}

function close(): void {
	source?.close();
	source = null;
	connected.value = null;
}

// release shows what is held, when its time has come.
function release(): void {
	clearTimeout(timer);
	if (!held.value || paused.value || loads.value > 0) return;
	const wait = shown + leastGap - Date.now();
	if (wait > 0) {
		timer = setTimeout(release, wait) as unknown as number;
		return;
	}
	shown = Date.now();
	interval.value = held.value;
	held.value = null;
	waiting.value = 0;
}

export function startLive(): void {
	effect(release);
	open();
	document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
}

export function follow(on: boolean): void {
	following.value = on;
	if (on) open();
	else close();
}

// pause keeps what is shown as it is, while somebody points at it.
export function pause(on: boolean): void { paused.value = on; }
