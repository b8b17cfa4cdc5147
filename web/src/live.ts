// One stream of events for the tab: an event for each interval that ends.
import { signal } from "@preact/signals";
import { address } from "./api.ts";
import type { Answer } from "./types.ts";

// interval is the newest that the agent reported; paused under the pointer, it waits.
export const interval = signal<Answer | null>(null);
export const waiting = signal(0); // intervals that came while paused
export const connected = signal<boolean | null>(null); // null: nobody follows
export const following = signal(true);

let source: EventSource | null = null;
let paused = false;
let held: Answer | null = null;

const path = address("/api/v1/live", { by: "family", limit: 2 });

function open(): void {
	if (source || document.hidden || !following.value) return;
	source = new EventSource(path);
	source.addEventListener("open", () => { connected.value = true; });
	source.addEventListener("error", () => { connected.value = false; }); // the browser tries again, and resumes
	source.addEventListener("flows", (e) => {
		connected.value = true;
		const next = JSON.parse((e as MessageEvent<string>).data) as Answer;
		if (paused) {
			held = next;
			waiting.value++;
		} else interval.value = next;
	});
}

function close(): void {
	source?.close();
	source = null;
	connected.value = null;
}

export function startLive(): void {
	open();
	document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
}

export function follow(on: boolean): void {
	following.value = on;
	if (on) open();
	else close();
}

// pause keeps what is shown as it is, while somebody points at it.
export function pause(on: boolean): void {
	paused = on;
	if (on) return;
	if (held) interval.value = held;
	held = null;
	waiting.value = 0;
}
