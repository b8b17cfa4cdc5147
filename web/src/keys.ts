// Keys: each does what a button does, too.
import { signal } from "@preact/signals";

export interface Binding { keys: string; doc: string; run(): void }

const pages = new Map<string, Binding>(); // of the page that is shown
const always = new Map<string, Binding>();
export const bindings = signal<Binding[]>([]);

function announce(): void {
	bindings.value = [...always.values(), ...pages.values()];
}

export function bindAlways(list: Binding[]): void {
	for (const b of list) always.set(b.keys, b);
	announce();
}

// bindPage binds keys while a page is shown.
export function bindPage(list: Binding[]): () => void {
	for (const b of list) pages.set(b.keys, b);
	announce();
	return () => {
		for (const b of list) if (pages.get(b.keys) === b) pages.delete(b.keys);
		announce();
	};
}

let first = ""; // of two keys in a row

function typing(target: EventTarget | null): boolean {
	const e = target as HTMLElement | null;
	return !!e && (e.tagName === "TEXTAREA" || e.tagName === "SELECT" || (e.tagName === "INPUT" && (e as HTMLInputElement).type !== "checkbox"));
}

export function startKeys(): void {
	addEventListener("keydown", (e) => {
		if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented) return;
		if (typing(e.target)) {
			if (e.key === "Escape") (e.target as HTMLElement).blur();
			return;
		}
		const pressed = first ? `${first} ${e.key}` : e.key;
		first = "";
		const b = pages.get(pressed) ?? always.get(pressed);
		if (b) {
			e.preventDefault();
			b.run();
		} else if (e.key === "g") first = "g";
	});
}
