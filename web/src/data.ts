// Loads what a page shows, and again when something of it changed.
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { get, Refusal } from "./api.ts";
import type { Reference } from "./types.ts";

export interface Loaded<T> {
	value?: T; // the last one, also while the next is loaded
	error?: Refusal;
	loading: boolean;
}

// loads is how many are under way.
export const loads = signal(0);

// useData loads when key changes; an empty key loads nothing.
export function useData<T>(key: string, load: (signal: AbortSignal) => Promise<T>): Loaded<T> {
	const [state, set] = useState<Loaded<T>>({ loading: key !== "" });
	useEffect(() => {
		if (!key) {
			set({ loading: false });
			return;
		}
		const stop = new AbortController();
		set((old) => ({ ...old, loading: true }));
		loads.value++;
		load(stop.signal).then(
			(value) => { if (!stop.signal.aborted) set({ value, loading: false }); },
			(e: unknown) => {
				if (stop.signal.aborted) return;
				set((old) => ({ ...old, error: e instanceof Refusal ? e : new Refusal(String(e), "reload the page", 0), loading: false }));
			},
		).finally(() => { loads.value--; });
		return () => stop.abort();
	}, [key]);
	return state;
}

// reference is asked for once.
export const reference = signal<Reference | null>(null);
let asked = false;

export function needReference(): Reference | null {
	if (!asked) {
		asked = true;
		get<Reference>("/api/v1/reference").then((r) => { reference.value = r; }, () => { asked = false; });
	}
	return reference.value;
}
