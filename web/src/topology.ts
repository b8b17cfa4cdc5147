// What /api/v1/topology answers.
import type { Graph, Use } from "./types.ts";

export type { Edge, Node as GraphNode, Use } from "./types.ts";
export interface Topology extends Graph { host: string; at: string; use?: Use[] }
