import { useEffect, useRef, useState } from "preact/hooks";
import { get } from "../api.ts";
import { at } from "../series.ts";
import type { Answer, Completion, FilterError } from "../types.ts";

interface Choice { text: string; doc: string }

const historyKey = "filters";
const history = (): string[] => {
	try {
		return JSON.parse(localStorage.getItem(historyKey) ?? "[]") as string[];
	} catch {
		return [];
	}
};

function remember(text: string): void {
	if (text) localStorage.setItem(historyKey, JSON.stringify([text, ...history().filter((h) => h !== text)].slice(0, 30)));
}

// begun divides a text into what is complete and the word that is being written.
export function begun(text: string): [string, string] {
	const m = /^(.*?)([^\s()]*)$/s.exec(text)!;
	return [m[1]!, m[2]!];
}

// bytesTo is how many characters so many bytes of UTF-8 are.
export function bytesTo(text: string, bytes: number): number {
	return new TextDecoder().decode(new TextEncoder().encode(text).slice(0, bytes)).length;
}

// choices are what may stand at the end of a text: words of the grammar, and values that occur.
async function choices(text: string, signal: AbortSignal): Promise<Choice[]> {
	const [before, word] = begun(text);
	const c = await get<Completion>("/api/v1/complete", { filter: before }, signal);
	const list = c.words.map((w) => ({ text: w.text, doc: w.doc ?? "" }));
	if (c.field) list.unshift(...await values(c.field, signal));
	return list.filter((w) => w.text.startsWith(word) && w.text !== word).slice(0, 40);
}

async function values(field: string, signal: AbortSignal): Promise<Choice[]> {
	const key = field === "addr" ? "src" : field;
	try {
		const a = await get<Answer>("/api/v1/flows", { by: key, since: "1h", limit: 20 }, signal);
		return a.rows.map((r) => ({ text: String(at(r, key) ?? ""), doc: "seen in the last hour" })).filter((c) => c.text);
	} catch {
		return []; // no key to group by
	}
}

// FilterBox edits a filter: it completes, and marks where the parser stopped.
export function FilterBox(p: { value: string; onChange(text: string): void }) {
	const [text, setText] = useState(p.value);
	const [error, setError] = useState<FilterError | null>(null);
	const [list, setList] = useState<Choice[]>([]);
	const [chosen, choose] = useState(-1);
	const [open, setOpen] = useState(false);
	const recent = useRef(-1);
	const input = useRef<HTMLInputElement>(null);
	useEffect(() => setText(p.value), [p.value]);
	useEffect(() => {
		const stop = new AbortController();
		const timer = setTimeout(() => {
			get<Completion>("/api/v1/complete", { filter: text }, stop.signal).then((c) => setError(text.trim() ? c.error ?? null : null), () => {});
			if (open) choices(text, stop.signal).then((c) => { setList(c); choose(-1); }, () => {});
		}, 60);
		return () => { clearTimeout(timer); stop.abort(); };
	}, [text, open]);

	const write = (next: string) => { setText(next); setOpen(true); };
	const take = (c: Choice) => { write(`${begun(text)[0]}${c.text} `); input.current?.focus(); };
	const apply = () => { setOpen(false); remember(text.trim()); p.onChange(text.trim()); };
	const fromHistory = (by: number) => {
		const past = history();
		recent.current = Math.max(-1, Math.min(past.length - 1, recent.current + by));
		setText(recent.current < 0 ? p.value : past[recent.current]!);
	};
	const keys: Record<string, () => boolean> = {
		ArrowDown: () => { if (!list.length) fromHistory(-1); else choose(Math.min(list.length - 1, chosen + 1)); setOpen(true); return true; },
		ArrowUp: () => { if (chosen < 0 || !open) fromHistory(1); else choose(chosen - 1); return true; },
		Tab: () => { const c = list[Math.max(0, chosen)]; if (!open || !c || !begun(text)[1]) return false; take(c); return true; },
		Enter: () => { const c = list[chosen]; if (open && c) take(c); else apply(); return true; },
		Escape: () => { if (!open) return false; setOpen(false); return true; },
	};
	const shown = open && list.length > 0;
	return (
		<form class="filter" role="search" onSubmit={(e) => { e.preventDefault(); apply(); }}>
			<span class="prompt" aria-hidden="true">where</span>
			<div class="field">
				<div class="under" aria-hidden="true">{error ? <Marked text={text} error={error} /> : null}</div>
				<input
					ref={input} id="filter" type="text" spellcheck={false} autocomplete="off" autocapitalize="off" value={text}
					placeholder="all flows · tcp and dport 443 · net 10/8 and rtt > 50ms" aria-label="Filter" role="combobox" aria-expanded={shown}
					aria-controls="choices" aria-autocomplete="list" aria-invalid={error !== null} aria-describedby="filter-error"
					aria-activedescendant={shown && chosen >= 0 ? `choice-${chosen}` : undefined}
					onInput={(e) => write(e.currentTarget.value)} onFocus={() => setOpen(true)} onBlur={() => setTimeout(() => setOpen(false), 150)}
					onKeyDown={(e) => { if (keys[e.key]?.()) e.preventDefault(); }}
				/>
				<ul id="choices" role="listbox" aria-label="What may follow" hidden={!shown}>
					{shown && list.map((c, i) => (
						<li key={c.text} id={`choice-${i}`} role="option" aria-selected={i === chosen} onMouseDown={(e) => { e.preventDefault(); take(c); }}>
							<b>{c.text}</b><span>{c.doc}</span>
						</li>
					))}
				</ul>
			</div>
			{text !== p.value && <button type="submit" class="primary">Apply</button>}
			{text && <button type="button" aria-label="Clear the filter" title="Clear the filter" onClick={() => { setText(""); p.onChange(""); }}>✕</button>}
			<div id="filter-error" class="filter-error" aria-live="polite">{error && !shown ? error.what : ""}</div>
		</form>
	);
}

function Marked(p: { text: string; error: FilterError }) {
	const from = bytesTo(p.text, p.error.begin), to = Math.max(bytesTo(p.text, p.error.end), from + 1);
	return <>{p.text.slice(0, from)}<u>{p.text.slice(from, to) || " "}</u></>;
}
