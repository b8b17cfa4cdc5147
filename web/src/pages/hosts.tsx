import { get } from "../api.ts";
import { useData } from "../data.ts";
import { ago, clock, counted, delay, percent, short } from "../format.ts";
import { interval } from "../live.ts";
import { CopyButton } from "../parts/copy.tsx";
import { Failure, Notice, Waiting } from "../parts/notice.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { href } from "../route.ts";
import type { Examined, Exporter, Hook, Interface, Loss, MemoryShare, Status } from "../types.ts";

// Hosts is how the agent does: what it counts, what it lost, what it takes.
export function Hosts() {
	const loaded = useData(`status ${interval.value?.to ?? ""}`, (s) => get<Status>("/api/v1/status", {}, s));
	const s = loaded.value;
	return (
		<div class="page hosts">
			<Failure of={loaded} />
			{s ? <Host of={s} /> : loaded.loading && <Waiting what="Asking the agent" />}
		</div>
	);
}

function Host(p: { of: Status }) {
	const s = p.of, now = Date.parse(s.now) / 1000;
	const facts: [string, string][] = [
		["Version", `${s.version}, process ${s.pid}`],
		["Running", `${ago(now - Date.parse(s.started) / 1000)}, since ${clock(Date.parse(s.started) / 1000)}`],
		["Clock", `${clock(now)}; ${skew(Date.now() / 1000 - now)}`],
		["Counts by", s.probe === "ebpf" ? "eBPF, in the kernel" : "AF_PACKET, in user space"],
		["Flow table", `${short(s.table.entries)} of ${short(s.table.max_entries)} slots, ${short(s.table.memory_bytes, "B")}; ${short(s.table.live)} live flows`],
		["Last drain", `${delay(s.drain.last_ns)}, every ${delay(s.drain.interval_ns)}; ${short(s.drain.deltas)} counts since the start`],
		["History", s.history ? `${short(s.history.records)} records, ${short(s.history.bytes, "B")} of ${short(s.history.size, "B")} in ${s.history.path}; oldest ${s.history.oldest ? clock(Date.parse(s.history.oldest) / 1000) : "–"}` : "in memory only"],
		["Readers", `${counted(s.api.connections, "connection")}, ${counted(s.api.followers, "follower")}; ${s.api.dropped} dropped because they were too slow`],
	];
	return (
		<>
			<div class="headline"><h1>{s.host}</h1><p class="muted">Counters of this agent since it started.</p><CopyButton text="waymark status" what="waymark status" label="Copy as command" /></div>
			{s.history?.failing && <Notice kind="error" title="Records are not written to disk">{s.history.failing}</Notice>}
			<div class="halves">
				<section class="card" aria-label="The agent"><h2>The agent</h2><dl class="facts">{facts.map(([k, v]) => <div key={k}><dt>{k}</dt><dd>{v}</dd></div>)}</dl></section>
				<Losses of={s} />
			</div>
			<section class="card" aria-label="Interfaces"><h2>Interfaces and their coverage</h2><Interfaces of={s} /></section>
			<section class="card" aria-label="Exporters"><h2>Exporters</h2>
				{s.exporters.length ? <Table caption="Exporters" rows={s.exporters} id={(e) => e.name + e.target} columns={exporterColumns} />
					: <Notice title="No exporter is configured">Records stay on this host. To send them on: <pre>{"export:\n  - ipfix: {collector: \"udp://192.0.2.10:4739\"}"}</pre></Notice>}
			</section>
			{s.memory.shares.length > 0 && <section class="card" aria-label="Memory"><h2>Planned memory</h2>
				<Table caption="Memory" rows={s.memory.shares} id={(m) => m.name} columns={memoryColumns} />
			</section>}
			<Doctor />
		</>
	);
}

// Doctor is what the agent found of the kernel when it started: first what is not as it should be.
function Doctor() {
	const loaded = useData("doctor", (s) => get<Examined>("/api/v1/doctor", {}, s));
	const checks = loaded.value?.checks ?? [];
	const wrong = checks.filter((c) => c.state !== "ok"), fine = checks.filter((c) => c.state === "ok");
	return (
		<section class="card" aria-label="Doctor">
			<div class="title"><h2>What this host supports</h2><CopyButton text="waymark doctor" what="waymark doctor" label="Copy as command" /></div>
			<Failure of={loaded} />
			{wrong.length > 0 ? <Table caption="Features that are missing or limited" rows={wrong} id={(c) => c.name} columns={[
				{ name: "check", title: "name", cell: (c) => c.name }, { name: "state", title: "state", cell: (c) => <span class="flag">{c.state}</span> },
				{ name: "found", title: "what is there", cell: (c) => c.found ?? "" }, { name: "instead", title: "what is done without", cell: (c) => c.instead ?? c.purpose ?? "" },
				{ name: "remedy", title: "how to get it", cell: (c) => c.remedy ?? "" },
			]} /> : checks.length > 0 && <Notice title="All features that Waymark uses are available">{fine.length} features and privileges were examined when the agent started.</Notice>}
			{fine.length > 0 && <details class="fine"><summary>{counted(fine.length, "check")} passed</summary><dl class="facts">{fine.map((c) => <div key={c.name}><dt>{c.name}</dt><dd>{c.purpose}</dd></div>)}</dl></details>}
		</section>
	);
}

function skew(by: number): string {
	return Math.abs(by) < 2 ? "equal to this browser's" : `this browser's is ${ago(Math.abs(by))} ${by > 0 ? "ahead" : "behind"}`;
}

function Losses(p: { of: Status }) {
	const all: Loss[] = [...p.of.losses, ...p.of.exporters.flatMap((e) => e.lost.map((l) => ({ ...l, where: `exporter ${e.name}` })))].filter((l) => l.count > 0);
	return (
		<section class="card" aria-label="Losses">
			<h2>Losses</h2>
			{all.length ? <Table caption="Losses by reason" rows={all} id={(l) => `${l.where} ${l.reason}`} columns={[
				{ name: "where", title: "part of the agent", cell: (l) => l.where }, { name: "reason", title: "why", cell: (l) => l.reason.replace(/_/g, " ") },
				{ name: "count", title: "records or packets", right: true, cell: (l) => short(l.count) },
			]} /> : <Notice title="Nothing was lost">Every packet of the interfaces below is in a flow, or in a counter with a reason.</Notice>}
		</section>
	);
}

interface Place { hook?: Hook; of?: Interface; key: string; name: string; direction: string }

function Interfaces(p: { of: Status }) {
	const name = (x: { netns?: string; iface: string }) => (x.netns ? `${x.netns}/${x.iface}` : x.iface);
	const places = new Map<string, Place>();
	const place = (x: { netns?: string; iface: string; direction: string }) => {
		const key = `${name(x)} ${x.direction}`;
		if (!places.has(key)) places.set(key, { key, name: name(x), direction: x.direction });
		return places.get(key)!;
	};
	for (const h of p.of.hooks) if (!h.mode.startsWith("xdp")) place(h).hook = h;
	for (const i of p.of.interfaces) place(i).of = i;
	const rows = [...places.values()].sort((a, b) => (a.of?.coverage ?? 0) - (b.of?.coverage ?? 0) || a.key.localeCompare(b.key));
	if (!rows.length) return <Notice title="No interface is counted">Name some in the configuration: <pre>{"interfaces: [\"eth*\"]"}</pre></Notice>;
	return <Table caption="Interfaces, least coverage first" rows={rows} id={(r) => r.key} columns={placeColumns} />;
}

const placeColumns: Column<Place>[] = [
	{ name: "interface", title: "with its namespace", cell: (r) => <a href={href("/explore", { where: `iface ${r.name.split("/").pop()!}`, by: "conversation", since: "1h" })}>{r.name}</a> },
	{ name: "direction", title: "direction", cell: (r) => r.direction },
	{ name: "hook", title: "how packets are counted", cell: (r) => (r.hook ? `${r.hook.mode}, ${r.hook.state}` : "–") },
	{ name: "packets", title: "counted", right: true, cell: (r) => short(r.of?.packets ?? 0) },
	{ name: "interface counter", title: "counted by the kernel's counters of the interface", right: true, narrow: true, cell: (r) => short(r.of?.iface_packets ?? 0) },
	{ name: "coverage", title: "what was counted of it", right: true, cell: (r) => (r.of?.iface_packets ? <span class={r.of.coverage < 0.99 ? "flag" : ""}>{percent(r.of.coverage)}</span> : "no packet") },
	{ name: "in no flow", title: "packets by reason", narrow: true, cell: (r) => r.of?.uncounted.filter((u) => u.packets).map((u) => `${short(u.packets)} ${u.reason.replace(/_/g, " ")}`).join(", ") || "none" },
	{ name: "note", title: "what is wrong", cell: (r) => r.hook?.error ?? r.hook?.warning ?? "" },
];

const exporterColumns: Column<Exporter>[] = [
	{ name: "exporter", title: "name", cell: (e) => e.name }, { name: "to", title: "where it writes", cell: (e) => e.target },
	{ name: "exported", title: "records", right: true, cell: (e) => short(e.exported) },
	{ name: "queue", title: "records that wait", right: true, cell: (e) => `${short(e.queued)} of ${short(e.queue_size)}` },
	{ name: "lost", title: "records", right: true, cell: (e) => short(e.lost.reduce((n, l) => n + l.count, 0)) },
	{ name: "last error", title: "last error", cell: (e) => e.last_error ?? "" },
];

const memoryColumns: Column<MemoryShare>[] = [
	{ name: "part", title: "part of the agent", cell: (m) => m.name }, { name: "at most", title: "bytes", right: true, cell: (m) => short(m.bytes, "B") },
	{ name: "elements", title: "elements that fit", right: true, cell: (m) => short(m.count) }, { name: "key", title: "of the configuration", cell: (m) => (m.key ? <code>{m.key}</code> : "") },
];
