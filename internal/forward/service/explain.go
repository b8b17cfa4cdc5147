package service

import "github.com/waymark-net/waymark/internal/stage"

var explainPage = stage.ExplainPage("forward", page.Missing)

var explainer = &stage.Explainer{
	Path:  explainPage.Path,
	Short: "Show what would become of a packet that arrives at an interface",
	Long: `Explain has the program at XDP of the running agent try a packet, as if it arrived at the
interface, and shows what would become of it: where it would leave, with which next hop,
link addresses and TTL; or why the kernel would get it. The program runs with the kernel's
tables as they are, and counts, remembers and sends nothing.`,
	Example: `  waymark forward explain eth0 src 192.0.2.1 dst 198.51.100.2 udp dst port 53
  waymark forward explain eth0 --hex src 192.0.2.1 dst 198.51.100.2 tcp dst port 443 syn
  waymark forward explain eth0 trace.pcapng`,
}
