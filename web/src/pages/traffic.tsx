import { get } from "../api.ts";
import { useData } from "../data.ts";
import { short } from "../format.ts";
import { type Drawn, Lines } from "../charts/lines.tsx";
import { Failure } from "../parts/notice.tsx";
import { trim } from "../explore.ts";
import { href } from "../route.ts";
import { lines, rest, summary, times } from "../series.ts";
import { serviceName } from "../names.ts";
import { colour, restColour } from "../theme.ts";
import type { Answer } from "../types.ts";

const step = 60, most = 6;

interface Shown { at: number[]; series: Drawn[]; rows: { name: string; filter: string; mean: number; share: number }[] }

async function load(signal: AbortSignal): Promise<Shown> {
	const common = { since: "1h", step: "1m", sums: "bytes" };
	const [top, total] = await Promise.all([
		get<Answer>("/api/v1/flows", { ...common, by: "service", limit: most }, signal),
		get<Answer>("/api/v1/flows", { ...common, by: "family" }, signal),
	]);
	const now = Date.now() / 1000, at = times(now - 3600, now, step);
	const rate = (r: { bytes?: number }) => ((r.bytes ?? 0) * 8) / step;
	const series: Drawn[] = lines(top.rows, top.by, at, rate, true, ([proto, port]) => serviceName(proto!, port!));
	const sum = lines(total.rows, [], at, rate, true, () => "")[0]?.values ?? at.map(() => 0);
	const known = { from: top.from ? Date.parse(top.from) / 1000 : now - 3600, to: top.to ? Date.parse(top.to) / 1000 : now };
	for (const values of [...series.map((x) => x.values), sum]) trim(values, at, step, known, true);
	const order = series.map((s) => ({ s, mean: summary(s.values).mean })).sort((a, b) => b.mean - a.mean);
	const sorted = order.map((o) => o.s);
	const all = summary(sum).mean;
	const rows = order.map(({ s, mean }) => {
		const [proto, port] = s.id.split("\u0000");
		return { name: s.label, filter: `${protoWord(proto!)}${port && port !== "0" ? ` and port ${port}` : ""}`, mean, share: all ? mean / all : 0 };
	});
	return { at, series: [...sorted, { id: "other", label: "Other", values: rest(sum, sorted), rest: true }], rows };
}

const protoWord = (n: string) => ({ 6: "tcp", 17: "udp", 1: "icmp", 58: "icmp6" })[n] ?? `proto ${n}`;

// Traffic is the last hour by service.
export function Traffic(p: { tick: string }) {
	const loaded = useData(`traffic ${p.tick}`, load);
	const v = loaded.value;
	return (
		<section class="card traffic" aria-label="Traffic of the last hour">
			<div class="title"><h2>Traffic of the last hour, by service</h2><a href={href("/explore", { since: "1h" })}>Explore</a></div>
			<Failure of={loaded} />
			{v && (
				<div class="split">
					<Lines label="Traffic of the last hour by service, a stack of areas; the table next to it has the means" times={v.at} series={v.series} stack text={(x) => short(x, "bit/s")} height={230} />
					<table class="compact">
						<caption class="hidden">Services by mean rate in the last hour</caption>
						<thead><tr><th scope="col">Service</th><th scope="col" class="right">Mean</th><th scope="col" class="right">Share</th></tr></thead>
						<tbody>
							{v.rows.map((r, i) => (
								<tr key={r.name}>
									<td><i class="mark" style={{ background: colour(i) }} /><a href={href("/explore", { where: r.filter, by: "conversation", since: "1h" })}>{r.name}</a></td>
									<td class="right">{short(r.mean, "bit/s")}</td><td class="right">{(r.share * 100).toFixed(0)} %</td>
								</tr>
							))}
							<tr><td><i class="mark" style={{ background: restColour() }} />Other</td><td class="right">{short(summary(v.series[v.series.length - 1]!.values).mean, "bit/s")}</td><td /></tr>
						</tbody>
					</table>
				</div>
			)}
		</section>
	);
}

