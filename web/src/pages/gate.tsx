import { get, Refusal } from "../api.ts";
import { Lines } from "../charts/lines.tsx";
import { useData } from "../data.ts";
import { clock, counted, short } from "../format.ts";
import { interval } from "../live.ts";
import { CopyButton } from "../parts/copy.tsx";
import { Failure, Notice, Waiting } from "../parts/notice.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { href } from "../route.ts";
import { lines, times } from "../series.ts";
import { trim } from "../explore.ts";
import type { Answer, Ban, Bans, Rule, Rules } from "../types.ts";

// Gate is what packet rules do.
export function Gate() {
	const tick = interval.value?.to ?? "";
	const rules = useData(`rules ${tick}`, (s) => get<Rules>("/api/v1/rules", {}, s));
	const bans = useData(rules.value ? `bans ${tick}` : "", (s) => get<Bans>("/api/v1/bans", {}, s));
	if (rules.error instanceof Refusal && rules.error.status === 404) {
		return <div class="page"><h1>Gate</h1><Notice title="No packet rules are in effect here">{rules.error.what}. To drop packets at the driver: {rules.error.how}<pre>waymark rules add drop src 203.0.113.0/24</pre></Notice></div>;
	}
	const r = rules.value;
	return (
		<div class="page gate">
			<div class="headline"><h1>Gate</h1><p class="muted">Packet rules with their counters. Changes are made on the host.</p><CopyButton text="waymark rules list" what="waymark rules list" label="Copy as command" /></div>
			<Failure of={rules} />
			{r ? (
				<>
					<section class="tiles" aria-label="Sums">
						{([["Passed", r.passed.packets, "decided by no rule"], ["Dropped by rules", r.rules.reduce((n, x) => n + x.dropped, r.removed.dropped), "since the start"],
							["Dropped by bans", r.banned.dropped, `${counted(bans.value?.bans.length ?? 0, "ban")} in effect`], ["Not IP", r.not_ip.packets, "meet no rule"]] as const).map(([name, n, note]) => (
							<div key={name} class="tile"><span>{name}</span><b>{short(n)}</b><em>{note}</em></div>
						))}
					</section>
					<Drops tick={tick} />
					<section class="card" aria-label="Rules"><h2>Rules, in their order</h2>
						{r.rules.length ? <Table caption="Rules" rows={r.rules} id={(x) => String(x.id)} columns={ruleColumns} />
							: <Notice title="There is no rule">Everything passes. Add one: <pre>waymark rules add drop src 203.0.113.0/24</pre></Notice>}
					</section>
					<section class="card" aria-label="Bans"><h2>Bans</h2>
						<Failure of={bans} />
						{bans.value?.bans.length ? <Table caption="Bans" rows={bans.value.bans} id={(b) => b.prefix} columns={banColumns} />
							: <Notice title="Nobody is banned">By hand: <code>waymark rules ban 203.0.113.66 for 1h</code>; by rate: a rule <code>detect</code>.</Notice>}
					</section>
					{r.sets.length > 0 && <section class="card" aria-label="Sets"><h2>Sets</h2><Table caption="Sets" rows={r.sets} id={(x) => x.name} columns={[
						{ name: "set", title: "name", cell: (x) => x.name }, { name: "members", title: "addresses or ports", right: true, cell: (x) => short(x.members) },
					]} /></section>}
				</>
			) : rules.loading && <Waiting what="Asking the agent" />}
		</div>
	);
}

// Drops are those of the last hour, by rule.
function Drops(p: { tick: string }) {
	const loaded = useData(`drops ${p.tick}`, async (s) => {
		const a = await get<Answer>("/api/v1/flows", { filter: "drops > 0", by: "drops.by", sort: "drops", since: "1h", step: "1m", limit: 8 }, s);
		const now = Date.now() / 1000, at = times(now - 3600, now, 60);
		const series = lines(a.rows, ["drops.by"], at, (r) => (r.drops?.packets ?? 0) / 60, true, (k) => k[0] || "several");
		for (const one of series) trim(one.values, at, 60, { from: a.from ? Date.parse(a.from) / 1000 : now - 3600, to: a.to ? Date.parse(a.to) / 1000 : now }, true);
		return { at, series };
	});
	const v = loaded.value;
	return (
		<section class="card" aria-label="Drops of the last hour">
			<div class="title"><h2>Drops of the last hour, by rule</h2><a href={href("/explore", { where: "drops > 0", by: "src,dport", sort: "drops", since: "1h" })}>Who was dropped?</a></div>
			<Failure of={loaded} />
			{v && (v.series.length ? <Lines label="Dropped packets by rule over the last hour; the table below has the sums" times={v.at} series={v.series} stack text={(x) => short(x, "/s")} height={180} />
				: <Notice title="No rule dropped a packet in the last hour" />)}
		</section>
	);
}

const ruleColumns: Column<Rule>[] = [
	{ name: "id", title: "number", right: true, cell: (r) => r.id },
	{ name: "rule", title: "text", cell: (r) => <code>{r.text}</code> },
	{ name: "packets", title: "that matched", right: true, cell: (r) => short(r.packets) },
	{ name: "dropped", title: "of these", right: true, cell: (r) => short(r.dropped) },
	{ name: "now", title: "packets a second between the last two scans", right: true, cell: (r) => short(r.packets_per_second, "/s") },
	{ name: "flows", title: "of the last hour", cell: (r) => <a href={href("/explore", { where: `drop_rule ${r.id}`, by: "src,dport", sort: "drops", since: "1h" })}>show</a> },
];

const banColumns: Column<Ban>[] = [
	{ name: "source", title: "address or prefix", cell: (b) => <code>{b.prefix}</code> },
	{ name: "since", title: "begin", cell: (b) => clock(Date.parse(b.since) / 1000) },
	{ name: "until", title: "end", cell: (b) => (b.until ? clock(Date.parse(b.until) / 1000) : "without end") },
	{ name: "by", title: "who made it", cell: (b) => b.by }, { name: "reason", title: "reason", cell: (b) => b.reason ?? "" },
	{ name: "dropped", title: "packets", right: true, cell: (b) => short(b.dropped) },
];
