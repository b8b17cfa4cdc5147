import { change, params } from "../route.ts";
import { clock } from "../format.ts";
import { duration, iso, moved, type Range, range, zoomed } from "../time.ts";

const presets = ["10m", "1h", "6h", "24h", "7d"];

// setRange shows another time; one that ends now stays so.
export function setRange(r: Range): void {
	const now = Date.now() / 1000;
	if (r.to >= now - 2) change({ since: duration(Math.max(10, now - r.from)), until: undefined });
	else change({ since: iso(r.from), until: iso(r.to) });
}

export function shown(fallback: string): Range {
	return range(params.value.since ?? fallback, params.value.until ?? "", Date.now() / 1000);
}

// RangePicker selects what time is shown.
export function RangePicker(p: { fallback: string }) {
	const { since = p.fallback, until } = params.value;
	const r = shown(p.fallback);
	const local = (t: number) => new Date((t - new Date(t * 1000).getTimezoneOffset() * 60) * 1000).toISOString().slice(0, 16);
	return (
		<div class="range" role="group" aria-label="Time range">
			<button type="button" title="Earlier ([)" aria-label="Earlier" onClick={() => setRange(moved(r, -0.5))}>‹</button>
			{presets.map((s) => (
				<button key={s} type="button" aria-pressed={!until && since === s} onClick={() => change({ since: s, until: undefined })}>{s}</button>
			))}
			<button type="button" title="Later (])" aria-label="Later" disabled={!until} onClick={() => setRange(moved(r, 0.5))}>›</button>
			<details>
				<summary title={`${iso(r.from)} to ${iso(r.to)} (UTC)`}>{until || !presets.includes(since) ? `${clock(r.from)} – ${until ? clock(r.to) : "now"}` : "Other…"}</summary>
				<form class="pop" onSubmit={(e) => {
					e.preventDefault();
					const f = new FormData(e.currentTarget);
					const read = (n: string) => new Date(String(f.get(n))).getTime() / 1000;
					setRange({ from: read("from"), to: read("to") });
					e.currentTarget.closest("details")!.open = false;
				}}>
					<label>From <input name="from" type="datetime-local" required value={local(r.from)} /></label>
					<label>To <input name="to" type="datetime-local" required value={local(r.to)} /></label>
					<button type="submit" class="primary">Show</button>
				</form>
			</details>
		</div>
	);
}

export const rangeKeys = (fallback: string) => [
	{ keys: "[", doc: "half a range earlier", run: () => setRange(moved(shown(fallback), -0.5)) },
	{ keys: "]", doc: "half a range later", run: () => setRange(moved(shown(fallback), 0.5)) },
	{ keys: "+", doc: "zoom in", run: () => setRange(zoomed(shown(fallback), 2)) },
	{ keys: "-", doc: "zoom out", run: () => setRange(zoomed(shown(fallback), 0.5)) },
];
