import type { ComponentChildren } from "preact";
import type { Loaded } from "../data.ts";

// Notice says what there is to know instead of an answer, and what to do.
export function Notice(p: { kind?: "error" | "empty" | "warn"; title: string; children?: ComponentChildren }) {
	return (
		<div class={`notice ${p.kind ?? "empty"}`} role={p.kind === "error" ? "alert" : "status"}>
			<strong>{p.title}</strong>
			{p.children && <div class="how">{p.children}</div>}
		</div>
	);
}

// Failure shows what the API refused, as it says it: filters have a mark below the place.
export function Failure(p: { of: Loaded<unknown> }) {
	const e = p.of.error;
	if (!e) return null;
	const [first, ...more] = e.what.split("\n");
	return (
		<Notice kind="error" title={first!}>
			{more.length > 0 && <pre>{more.join("\n")}</pre>}
			{e.how}
			{e.status === 401 && e.how.includes("/session") && <p><a class="button primary" href="/session">Log in</a></p>}
		</Notice>
	);
}

export function Waiting(p: { what: string }) {
	return <div class="waiting" role="status" aria-live="polite"><span class="pulse" aria-hidden="true" />{p.what}</div>;
}
