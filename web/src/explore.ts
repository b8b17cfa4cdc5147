// What the page Explore asks, and what it makes of the answers.
import { get, type Params } from "./api.ts";
import { measure } from "./format.ts";
import { keyNames } from "./names.ts";
import { exchanged, keyed, lines, number, rest, type Series, times } from "./series.ts";
import { duration, iso, niceStep, type Range, range, seconds } from "./time.ts";
import type { Answer, NumberDoc, Row } from "./types.ts";

export interface Question {
	where: string; by: string; sort: string; show: string; since: string; until: string;
	step: string; limit: number; before: boolean; both: boolean;
}

export const defaults = { by: "service", sort: "bytes", show: "stack", since: "1h", limit: "10" };

export function question(p: Record<string, string>): Question {
	return {
		where: p.where ?? "", by: p.by ?? defaults.by, sort: p.sort ?? defaults.sort, show: p.show ?? defaults.show,
		since: p.since ?? defaults.since, until: p.until ?? "", step: p.step ?? "", limit: Number(p.limit ?? defaults.limit) || 10,
		before: p.before === "true", both: p.both === "true",
	};
}

// asked are the parameters of the API, which are those of waymark flows.
export function asked(q: Question): Params {
	return { filter: q.where, by: q.by, sort: q.sort === "bytes" ? "" : q.sort, since: q.since, until: q.until, limit: q.limit };
}

export interface Line extends Series { keys: string[]; row?: Row; all: (number | null)[] } // all: both directions

export interface Result {
	range: Range; step: number; times: number[]; by: string[]; answer: Answer;
	lines: Line[]; other?: Series; total?: (number | null)[]; before?: (number | null)[]; back?: Line[];
	measure: ReturnType<typeof measure>; number: NumberDoc; span: number;
}

const folds = ["conversation", "service", "pair", "session", "peer", "peer_port", "peer_service", "local_service"];
// places have rows of which several have the same packets: on interfaces, at hosts, and of peers at both ends.
const places = ["flow", "transit", "iface", "netns", "direction", "in", "out", "host", "session", "peer", "peer_port", "peer_service", "local_service"];
const has = (by: string, names: string[]) => by.split(",").some((k) => names.includes(k.split("/")[0]!));

// label names a group by the values of its keys.
export function label(by: string[], keys: string[]): string {
	return keyNames(by, keys).join(" · ") || "all";
}

const parts = (q: Question) => (q.show === "heat" ? 120 : 180);

export function stepOf(q: Question, r: Range): number {
	const given = seconds(q.step);
	const least = niceStep(r.to - r.from, parts(q));
	return Number.isNaN(given) ? least : Math.max(given, (r.to - r.from) / 1500, 1);
}

// same reports whether two answers are about the same packets, but for an interval that ended between them.
export function same(a: Answer, b: Answer, by = "packets"): boolean {
	const [x, y] = [a, b].map((t) => (t.total as unknown as Record<string, number>)[by] ?? 0) as [number, number];
	return Math.abs(x - y) <= 0.02 * y + 100;
}

// ask puts the questions of a page at the same time. A series has its groups over all the time, too.
export async function ask(q: Question, doc: NumberDoc, signal: AbortSignal): Promise<Result> {
	const now = Date.now() / 1000, r = range(q.since, q.until, now), step = stepOf(q, r);
	const sums = doc.counter ? [...new Set([doc.path, "packets", "bytes"])].join(",") : undefined; // all that chart and table need
	const base = asked(q), stepped = { ...base, step: duration(step), sums };
	const everywhere = has(q.by, places);
	const totals = (more: Params) => get<Answer>("/api/v1/flows", { filter: q.where, by: "family", step: duration(step), everywhere, sums: doc.counter ? doc.path : undefined, ...more }, signal);
	// A filter of a counter means groups: by family, these are others. Then the groups themselves are summed.
	const likewise = async (t: Answer | null, of: Answer, more: Params) => (!t || same(t, of, doc.path) ? t : get<Answer>("/api/v1/flows", { ...stepped, limit: 0, ...more }, signal));
	const folded = has(q.by, folds);
	const length = r.to - r.from;
	const earlier = { since: iso(r.from - length), until: iso(r.from) };
	const [series, family, familyBefore, back] = await Promise.all([
		get<Answer>("/api/v1/flows", stepped, signal),
		doc.sum ? totals({ since: q.since, until: q.until }) : null,
		q.before && doc.sum ? totals(earlier) : null,
		q.both && !folded ? get<Answer>("/api/v1/flows", { ...stepped, by: exchanged(q.by), filter: exchanged(q.where), limit: 0 }, signal) : null,
	]);
	const answer = { ...series, rows: series.whole ?? [] };
	const total = await likewise(family, answer, {});
	const before = total === family ? familyBefore : await likewise(familyBefore, answer, earlier);
	const at = times(r.from, r.to, step);
	const m = measure(doc.unit, doc.sum);
	const value = (row: Row) => scaled(number(row, doc.path), m, step);
	const of = arranged(lines(series.rows, answer.by, at, value, doc.sum, (k) => label(answer.by, k)), answer);
	const sum = total && flat(total, at, value);
	const result: Result = {
		range: r, step, times: at, by: answer.by, answer, lines: of, measure: m, number: doc, span: spanOf(answer, r), total: sum ?? undefined,
		before: before ? flat(before, times(r.from - length, r.from, step), value).slice(0, at.length) : undefined,
	};
	const known = { from: answer.from ? Date.parse(answer.from) / 1000 : r.from, to: answer.to ? Math.min(r.to, Date.parse(answer.to) / 1000) : r.to };
	for (const values of [...of.map((l) => l.values), ...(sum ? [sum] : [])]) trim(values, at, step, known, doc.sum);
	if (sum && answer.groups > of.length) result.other = { id: "other", label: "Other", values: rest(sum, of) };
	if (q.both) {
		result.back = folded ? halves(result, series, at, step, known) : turned(back!, q, of, at, value, doc.sum);
		if (!folded) result.back.forEach((l) => trim(l.values, at, step, known, doc.sum));
	}
	return result;
}

// handshakes are the mean round trips of groups. They are no counters, for which all of a record would be read: of a short
// time, they are asked for once the rest is shown.
export async function handshakes(q: Question, signal: AbortSignal): Promise<Map<string, Row>> {
	const a = await get<Answer>("/api/v1/flows", asked(q), signal);
	return new Map(a.rows.map((row) => [keyed(row, a.by).join("\u0000"), row]));
}

export const mostOfHandshakes = 2 * 3600; // seconds

function scaled(v: number | undefined, m: ReturnType<typeof measure>, step: number): number | undefined {
	return v === undefined ? undefined : m.scale(v, step);
}

// trim takes away what is not known yet, and makes full rates of the steps that are known in part.
export function trim(values: (number | null)[], at: number[], step: number, known: Range, sum: boolean): void {
	at.forEach((t, i) => {
		const part = (Math.min(t + step, known.to) - Math.max(t, known.from)) / step, v = values[i];
		if (part <= 0.001) values[i] = null;
		else if (sum && v !== null && v !== undefined && part < 1) values[i] = v / part;
	});
}

// flat is the sum over all groups.
function flat(a: Answer, at: number[], value: (r: Row) => number | undefined): (number | null)[] {
	return lines(a.rows, [], at, value, true, () => "")[0]?.values ?? at.map(() => 0);
}

// spanOf is the time that rates of a whole answer are of: what it covers, not what was asked for.
function spanOf(a: Answer, r: Range): number {
	const from = Math.max(r.from, a.from ? Date.parse(a.from) / 1000 : r.from), to = Math.min(r.to, a.to ? Date.parse(a.to) / 1000 : r.to);
	return Math.max(1, to - from);
}

// arranged has the lines in the order of the rows of the table.
function arranged(of: Series[], a: Answer): Line[] {
	const found = new Map(of.map((s) => [s.id, s]));
	return a.rows.flatMap((row) => {
		const keys = keyed(row, a.by), s = found.get(keys.join("\u0000"));
		return s ? [{ ...s, keys, row, all: s.values }] : [];
	});
}

// halves divides the rows of a fold into what went and what came back.
function halves(r: Result, series: Answer, at: number[], step: number, known: Range): Line[] {
	const inBack = `back.${r.number.path}`;
	const value = (row: Row) => scaled(number(row, inBack), r.measure, step) ?? 0;
	const back = arranged(lines(series.rows, r.by, at, value, true, (k) => label(r.by, k)), r.answer);
	for (const b of back) trim(b.values, at, step, known, true);
	for (const line of r.lines) {
		const b = back.find((x) => x.id === line.id);
		if (b) line.values = line.values.map((v, i) => (v === null ? null : Math.max(0, v - (b.values[i] ?? 0))));
	}
	return back;
}

// turned are the groups whose source and destination are exchanged.
function turned(back: Answer, q: Question, of: Line[], at: number[], value: (r: Row) => number | undefined, sum: boolean): Line[] {
	const by = q.by.split(",").map((k) => exchanged(k.split("/")[0]!));
	const found = new Map(lines(back.rows, by, at, value, sum, () => "").map((s) => [s.id, s]));
	return of.flatMap((l) => {
		const s = found.get(l.id);
		return s ? [{ ...l, values: s.values }] : [];
	});
}

const words: Record<string, Record<string, string>> = { proto: { 6: "tcp", 17: "udp", 1: "icmp", 58: "icmp6" } };

// test is the filter that a cell stands for; empty: there is none.
export function test(key: string, value: string, folded: boolean): string {
	const [name, cut] = key.split("/");
	if (value === "" || value === "0" && (name === "dport" || name === "sport")) return "";
	if (name === "proto") return words.proto![value] ?? `proto ${value}`;
	if (name === "src" || name === "dst") return `${folded ? "" : `${name} `}${cut || value.includes("/") ? "net" : "host"} ${value}`;
	if (name === "sport" || name === "dport") return folded ? `port ${value}` : `${name} ${value}`;
	if (name === "in" || name === "out") return `iface ${value}`;
	return /\s/.test(value) ? `${name} "${value}"` : `${name} ${value}`;
}

export const isFold = (by: string) => has(by, folds);

// and adds a test to a filter.
export function and(where: string, more: string): string {
	if (!more) return where;
	return where ? `${/\bor\b/.test(where) ? `(${where})` : where} and ${more}` : more;
}

// csv is the table as text.
export function csv(r: Result): string {
	const head = [...r.by, "packets", "bytes", "records", r.number.path].map(quoted).join(",");
	const rows = r.answer.rows.map((row) => [...keyed(row, r.by), row.packets ?? 0, row.bytes ?? 0, row.records ?? 0, number(row, r.number.path) ?? ""].map((v) => quoted(String(v))).join(","));
	return [head, ...rows].join("\r\n") + "\r\n";
}

const quoted = (v: string) => (/[",\r\n]/.test(v) ? `"${v.replace(/"/g, '""')}"` : v);
