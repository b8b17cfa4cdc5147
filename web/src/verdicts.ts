// What verdicts are called, and where a reader goes from one.
import { href } from "./route.ts";
import type { Flow, VerdictAnswer, Verdict } from "./types.ts";

export type { Matter, Status, Verdict } from "./types.ts";
export type AnswerVerdict = VerdictAnswer;

const names: Record<string, string> = {
	server_slow: "Slow server", path_delay: "Delay on a path", path_loss: "Loss on a path", link_full: "Full link",
	unanswered: "No answer", retransmissions: "Retransmissions", gate_drops: "Drops by a rule", agent_losses: "Agent's losses",
};

export const kindName = (kind: string) => names[kind] ?? kind.replace(/_/g, " ");

const bracket = (a: string) => (a.includes(":") ? `[${a}]` : a);
export const end = (addr: string, port?: number) => (port ? `${bracket(addr)}:${port}` : addr);

// place is where it is wrong, in short.
export function place(v: Verdict): string {
	const w = v.where;
	if (w.rule) return `rule ${w.rule}`;
	if (w.part) return w.part;
	if (w.to_host) return w.host === w.to_host ? `host ${w.host}` : `${w.host} → ${w.to_host}`;
	if (v.flow?.dst) return end(v.flow.dst, v.flow.dport);
	if (w.path) return `path ${w.nodes ?? w.path}`;
	const at = [w.netns, w.iface].filter(Boolean).join("/");
	return at || [w.src, w.dst].filter(Boolean).join(" → ");
}

// number is what a chart of a verdict shows, by its kind.
export const number: Record<string, string> = {
	server_slow: "server", path_delay: "network", path_loss: "lost", link_full: "bytes", unanswered: "packets",
	retransmissions: "packets", gate_drops: "drops", agent_losses: "packets",
};

// filterOf matches the flows of a verdict, in both directions.
export function filterOf(v: Verdict): string {
	const f = v.flow, w = v.where;
	if (f?.dst) return flowFilter(f);
	const parts = [w.iface && `iface ${w.iface}`, w.src && `host ${w.src}`, w.dst && `host ${w.dst}`, v.kind === "gate_drops" && "drops > 0"];
	return parts.filter(Boolean).join(" and ");
}

export function flowFilter(f: Flow): string {
	const parts = [f.proto, `host ${f.dst}`, f.dport && `port ${f.dport}`, f.src && `host ${f.src}`, f.sport && `port ${f.sport}`];
	return parts.filter(Boolean).join(" and ");
}

// whereOf is the page with the flows of a verdict.
export function whereOf(v: Verdict): string {
	const f = v.flow;
	if (f?.src && f.sport && f.dport) return flowHref(f.proto, f.src, f.sport, f.dst, f.dport);
	const by = { server_slow: "service", gate_drops: "src,dport", unanswered: "src,dst,dport", link_full: "src,dst" }[v.kind as string] ?? "conversation";
	const sort = number[v.kind];
	return href("/explore", { where: filterOf(v), by, sort: sort === "bytes" ? undefined : sort, show: sort === "server" || sort === "network" ? "lines" : undefined, since: "1h" });
}

export function flowHref(proto: string, src: string, sport: number, dst: string, dport: number): string {
	return `/flow/${proto}/${bracket(src)}:${sport}/${bracket(dst)}:${dport}`;
}
