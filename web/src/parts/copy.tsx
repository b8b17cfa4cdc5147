import { signal } from "@preact/signals";

// said is read out, and shown for a moment.
export const said = signal("");
let timer = 0;

export function say(text: string): void {
	said.value = text;
	clearTimeout(timer);
	timer = setTimeout(() => { said.value = ""; }, 2500) as unknown as number;
}

// copy puts a text on the clipboard; browsers give one only to pages of https and loopback.
export async function copy(text: string, what: string): Promise<void> {
	try {
		await navigator.clipboard.writeText(text);
		say(`Copied: ${what}`);
	} catch {
		prompt(`Copy ${what}:`, text);
	}
}

export function CopyButton(p: { text: string; what: string; label?: string }) {
	return <button type="button" class="small" title={p.text} onClick={() => void copy(p.text, p.what)}>{p.label ?? "Copy"}</button>;
}
