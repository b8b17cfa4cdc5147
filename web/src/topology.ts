// What /api/v1/topology answers.
import type { Graph, Use } from "./types.ts";

export type { Edge, Node as GraphNode, Use } from "./types.ts";
export interface Claim { host: string; netns?: string; iface?: string }
export interface Topology extends Graph { host: string; at: string; use?: Use[]; ambiguous?: { kind: string; value: string; claims: Claim[]; more?: number }[] } // the last of an analyzer
