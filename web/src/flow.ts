// What the page of one flow asks, and what it makes of the answers.
import { get } from "./api.ts";
import { at, lines, number, type Series, times } from "./series.ts";
import { duration, iso, niceStep, type Range, range } from "./time.ts";
import { trim } from "./explore.ts";
import type { Answer, Row } from "./types.ts";

export interface End { addr: string; port: string }
export interface Name { proto: string; a: End; b: End }

// parseFlow reads /flow/tcp/[2001:db8::1]:80/192.0.2.1:5; null: it is none.
export function parseFlow(path: string): Name | null {
	const m = /^\/flow\/([\w-]+)\/([^/]+)\/([^/]+)$/.exec(path);
	const a = m && parseEnd(m[2]!), b = m && parseEnd(m[3]!);
	return m && a && b ? { proto: m[1]!, a, b } : null;
}

function parseEnd(text: string): End | null {
	const m = /^\[([0-9a-fA-F:.]+)\](?::(\d+))?$/.exec(text) ?? /^([0-9.]+)(?::(\d+))?$/.exec(text);
	return m ? { addr: m[1]!, port: m[2] ?? "" } : null;
}

// filterOfFlow matches both directions.
export function filterOfFlow(n: Name): string {
	const one = (s: End, d: End) => [`src host ${s.addr}`, s.port && s.port !== "0" && `sport ${s.port}`, `dst host ${d.addr}`, d.port && d.port !== "0" && `dport ${d.port}`].filter(Boolean).join(" and ");
	return `${n.proto} and ((${one(n.a, n.b)}) or (${one(n.b, n.a)}))`;
}

// Point is where a direction of the flow is counted.
export interface Point { netns: string; iface: string; direction: string; packets: number; bytes: number; ttl: number; dropped: number }

// Hop is a point, with what is lost on the way to it from the point before.
export interface Hop extends Point { lost?: number; share?: number }

// laneOf orders the points of one direction as packets pass them: by decreasing hop limit; where it
// is the same, packets leave an interface before they come in at another.
export function laneOf(rows: Row[], src: string): Hop[] {
	const points = rows.filter((r) => r.src === src).map((r) => ({
		netns: r.netns ?? "", iface: r.iface ?? "", direction: r.direction ?? "", packets: r.packets ?? 0, bytes: r.bytes ?? 0, ttl: r.ttl_max ?? 0, dropped: r.drops?.packets ?? 0,
	}));
	points.sort((x, y) => y.ttl - x.ttl || Number(x.direction === "ingress") - Number(y.direction === "ingress") || `${x.netns}/${x.iface}`.localeCompare(`${y.netns}/${y.iface}`));
	return points.map((p, i) => {
		const before = points[i - 1];
		if (!before) return p;
		const lost = Math.max(0, before.packets - p.packets);
		return { ...p, lost, share: before.packets ? lost / before.packets : 0 };
	});
}

export interface Delays { p50: number; p90: number; p99: number; count: number }

function delays(row: Row | undefined, of: "server" | "network"): Delays | undefined {
	const d = row?.pdm?.[of];
	return d?.count ? { p50: d.p50_ns ?? 0, p90: d.p90_ns ?? 0, p99: d.p99_ns ?? 0, count: d.count } : undefined;
}

export interface FlowResult {
	range: Range; step: number; times: number[]; whole?: Row; ways: [Hop[], Hop[]];
	rates: [Series?, Series?]; serverDelays?: Delays; networkDelays?: Delays; answer: Answer;
}

// More is what is shown below that.
export interface More { records: Row[]; drops: Row[]; traced?: Row["ioam"]; server?: Series; network?: Series }

type Ask = (more: Record<string, string | number | boolean>) => Promise<Answer>;

const asking = (n: Name, since: string, until: string, signal: AbortSignal): Ask =>
	(more) => get<Answer>("/api/v1/flows", { filter: filterOfFlow(n), since, until, ...more }, signal);

// askFlow asks what the flow is, its path and its rates.
export async function askFlow(n: Name, since: string, until: string, signal: AbortSignal): Promise<FlowResult> {
	const now = Date.now() / 1000, r = range(since, until, now), step = niceStep(r.to - r.from, 180);
	const ask = asking(n, since, until, signal);
	const one = n.a.port && n.b.port ? 0 : 1; // a limit takes a pass of its own
	const [whole, points, ways] = await Promise.all([
		ask({ by: "conversation", limit: one }),
		ask({ by: "netns,iface,direction,src", everywhere: true }),
		ask({ by: "src", step: duration(step), sums: "bytes" }),
	]);
	const axis = times(r.from, r.to, step);
	const known = { from: r.from, to: whole.to ? Date.parse(whole.to) / 1000 : r.to };
	if (whole.from) known.from = Date.parse(whole.from) / 1000;
	const rate = lines(ways.rows, ["src"], axis, (row) => ((row.bytes ?? 0) * 8) / step, true, (k) => k[0]!);
	rate.forEach((s) => trim(s.values, axis, step, known, true));
	return {
		range: r, step, times: axis, whole: whole.rows[0], answer: whole,
		ways: [laneOf(points.rows, n.a.addr), laneOf(points.rows, n.b.addr)],
		rates: [rate.find((s) => s.id === n.a.addr), rate.find((s) => s.id === n.b.addr)],
		serverDelays: delays(whole.rows[0], "server"), networkDelays: delays(whole.rows[0], "network"),
	};
}

const mostRecords = 24;

// askMore asks for the newest records, and for what few flows have.
export async function askMore(n: Name, since: string, until: string, of: FlowResult, signal: AbortSignal): Promise<More> {
	const ask = asking(n, since, until, signal), w = of.whole;
	if (!w) return { records: [], drops: [] };
	const step = Math.max(of.step, 10), last = Date.parse(w.last ?? "") / 1000;
	const newest = { since: iso(Math.max(of.range.from, last - mostRecords * step)), until: iso(Math.min(of.range.to, last + step)) };
	const [records, drops, paths, marked] = await Promise.all([
		ask({ by: "flow", step: duration(step), limit: 20, ...newest }),
		w.drops?.packets ? ask({ by: "drops.by", limit: 10 }) : null,
		w.ioam ? ask({ by: "ioam.path,ioam.nodes", limit: 5 }) : null,
		w.pdm ? ask({ by: "src", step: duration(of.step) }) : null,
	]);
	return {
		records: records.rows.sort((x, y) => String(y.time).localeCompare(String(x.time))).slice(0, mostRecords),
		drops: drops?.rows.filter((d) => d.drops?.packets) ?? [], traced: paths?.rows.find((row) => row.ioam?.path)?.ioam,
		server: marked ? delayLine(marked.rows, of.times, "pdm.server.p50_ns", "server") : undefined,
		network: marked ? delayLine(marked.rows, of.times, "pdm.network.p50_ns", "network") : undefined,
	};
}

// delayLine is a delay over time; only the direction that is received has one.
function delayLine(rows: Row[], axis: number[], path: string, label: string): Series | undefined {
	const with_ = rows.filter((row) => at(row, path) !== undefined);
	return with_.length ? lines(with_, [], axis, (row) => number(row, path), false, () => label)[0] : undefined;
}

const flagNames = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR", "AE"];

export function flagsOf(bits: number): string[] {
	return flagNames.filter((_, i) => bits & (1 << i));
}
