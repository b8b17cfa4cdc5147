// Turns rows of steps of time into lines of a chart.
import type { Row } from "./types.ts";

export interface Series {
	id: string; // the values of all keys
	label: string;
	values: (number | null)[]; // for each time
}

// keyed is what a row is a row of.
export function keyed(row: Row, by: string[]): string[] {
	return by.map((k) => {
		const v = at(row, k.split("/")[0]!);
		return v === undefined || v === null ? "" : String(v);
	});
}

// at follows a path such as pdm.server.p50_ns.
export function at(row: unknown, path: string): unknown {
	let v = row;
	for (const part of path.split(".")) {
		if (typeof v !== "object" || v === null) return undefined;
		v = (v as Record<string, unknown>)[part];
	}
	return v;
}

export function number(row: Row, path: string): number | undefined {
	const v = at(row, path);
	return typeof v === "number" ? v : undefined;
}

// times are the begins of all steps of a range.
export function times(from: number, to: number, step: number): number[] {
	const list: number[] = [];
	for (let t = Math.floor(from / step) * step; t < to; t += step) list.push(t);
	return list;
}

const begin = (row: Row) => Date.parse(String(row.time)) / 1000;

// lines makes a line of each group, in the order of first. Where a sum has no row, it is 0; any
// other number is not known there.
export function lines(rows: Row[], by: string[], axis: number[], value: (r: Row) => number | undefined, sum: boolean, label: (keys: string[]) => string): Series[] {
	const index = new Map(axis.map((t, i) => [t, i]));
	const found = new Map<string, Series>();
	for (const row of rows) {
		const keys = keyed(row, by), id = keys.join("\u0000");
		let s = found.get(id);
		if (!s) {
			s = { id, label: label(keys), values: new Array<number | null>(axis.length).fill(sum ? 0 : null) };
			found.set(id, s);
		}
		const i = index.get(begin(row)), v = value(row);
		if (i !== undefined && v !== undefined) s.values[i] = sum ? (s.values[i] ?? 0) + v : v;
	}
	return [...found.values()];
}

// rest is what a total has beyond the lines.
export function rest(total: (number | null)[], of: Series[]): (number | null)[] {
	return total.map((v, i) => (v === null ? null : Math.max(0, v - of.reduce((a, s) => a + (s.values[i] ?? 0), 0))));
}

// stacked adds each line to those below it.
export function stacked(of: Series[]): (number | null)[][] {
	const out: (number | null)[][] = [];
	for (const s of of) {
		const below = out[out.length - 1];
		out.push(s.values.map((v, i) => (v === null ? null : v + (below?.[i] ?? 0))));
	}
	return out;
}

export interface Summary { min: number; mean: number; p95: number; max: number; last: number }

// summary of the values that are known.
export function summary(values: (number | null)[]): Summary {
	const known = values.filter((v): v is number => v !== null);
	if (known.length === 0) return { min: NaN, mean: NaN, p95: NaN, max: NaN, last: NaN };
	const sorted = [...known].sort((a, b) => a - b);
	return {
		min: sorted[0]!,
		mean: known.reduce((a, b) => a + b, 0) / known.length,
		p95: sorted[Math.min(sorted.length - 1, Math.ceil(sorted.length * 0.95) - 1)]!,
		max: sorted[sorted.length - 1]!,
		last: known[known.length - 1]!,
	};
}

// exchanged turns a filter or keys round: source for destination.
export function exchanged(text: string): string {
	const other: Record<string, string> = { src: "dst", dst: "src", sport: "dport", dport: "sport" };
	return text.replace(/\b(src|dst|sport|dport)\b/g, (w) => other[w]!);
}
