import { delay, percent, short } from "../format.ts";
import type { Hop } from "../flow.ts";
import type { Row } from "../types.ts";

interface Props { title: string; from: string; to: string; hops: Hop[]; marks?: Row["pdm"] }

// Lane is the way of packets from left to right; an edge is dashed where nothing measures it.
export function Lane(p: Props) {
	const last = p.marks?.network?.count ? `${delay(p.marks.network.p50_ns ?? 0)} round trip` : "";
	return (
		<div class="scroll" role="region" aria-label={`${p.title}: from ${p.from} to ${p.to}`} tabIndex={0}>
			<ol class="lane">
				<li class="end"><div class="box"><b>{p.from}</b><span>{p.title === "Back" && p.marks?.server?.count ? `${delay(p.marks.server.p50_ns ?? 0)} at the server` : "sender"}</span></div></li>
				{p.hops.map((h, i) => (
					<li key={`${h.netns}/${h.iface}/${h.direction}`} class="hop">
						<Edge lost={h.lost} share={h.share} measured={i > 0} note={i === 0 && p.title === "Back" ? last : ""} />
						<div class={`box ${h.dropped ? "dropping" : ""}`}>
							<b>{h.netns ? `${h.netns}/` : ""}{h.iface}</b>
							<span>{h.direction} · {short(h.packets)} packets</span>
							<span>hop limit {h.ttl}{h.dropped > 0 && ` · ${short(h.dropped)} dropped by a rule`}</span>
						</div>
					</li>
				))}
				<li class="hop end"><Edge measured={false} note="" /><div class="box"><b>{p.to}</b><span>{p.hops.length ? "receiver" : "no packet was seen"}</span></div></li>
			</ol>
		</div>
	);
}

function Edge(p: { lost?: number; share?: number; measured: boolean; note: string }) {
	const bad = (p.share ?? 0) >= 0.001;
	return (
		<div class={`edge ${p.measured ? "" : "dashed"} ${bad ? "bad" : ""}`}>
			<span>{p.measured ? (p.lost ? `${short(p.lost)} lost, ${percent(p.share ?? 0)}` : "no loss") : p.note || "not measured"}</span>
		</div>
	);
}
