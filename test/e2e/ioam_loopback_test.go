package e2e

import (
	"fmt"
	"strings"
	"testing"

	ioamservice "github.com/waymark-net/waymark/internal/inband/ioam/service"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
)

// loopbackNode is a node of a domain that answers each packet that asks for a copy.
func loopbackNode(h *lab.Host, id int, insert string) string {
	text := quick + fmt.Sprintf("\ninterfaces: [LINKS]\nioam:\n  node: {id: %d}\n  namespaces: [{id: 123}]\n  loopback: {every: 1, rate: 1000}\n  interfaces:\n", id)
	for k, i := range h.Interfaces {
		text += fmt.Sprintf("  - {name: %s, id: %d}\n", i.Name, 10*id+k)
	}
	return text + insert
}

// A host sees how far its packets come, from the nodes that have an agent; copies change nothing for connections, also where
// an agent is killed that sends them, or the one that takes them.
func TestLoopbackAgents(t *testing.T) {
	t.Parallel()
	l := labtest.New(t, lab.Config{Topology: "chain", MTU: 1500})
	alpha, porthos, beta := l.Host("alpha"), l.Host("porthos"), l.Host("beta")
	const insert = "  insert: [{name: far, to: \"::/0\", every: 1, namespace: 123, trace: [hop_limit_node_id], size: 24, loopback: true}]\n"
	transit := start(t, setup{host: porthos, config: loopbackNode(porthos, 3, "")})
	source := start(t, setup{host: alpha, config: loopbackNode(alpha, 1, insert)})
	source.reload(t, loopbackNode(alpha, 1, strings.Replace(insert, "[hop_limit_node_id]", "[interface_ids]", 1)), "ioam.insert[0].loopback: loopback of another trace")
	source.reload(t, strings.Replace(loopbackNode(alpha, 1, insert), "every: 1, rate", "every: 100, rate", 1), "loopback from 1 of 1 packets; at most 1 of 100")
	transfers := transferAlways(t, alpha, beta)
	transfers.await(t, 2)
	await.Success(t, func() error {
		if out := must(t, nil, program, "paths", "--socket", source.socket); !strings.Contains(out, "1 > 3 < 1") {
			return notYet("%s", out)
		}
		return nil
	})
	if out := must(t, nil, program, "paths", "--socket", source.socket, "-o", "json"); !strings.Contains(out, `"reached":2`) {
		t.Errorf("no path that reached the second hop:\n%s", out)
	}
	if out := must(t, nil, program, "status", "--socket", transit.socket); !strings.Contains(out, "IOAM loopback: ") || strings.Contains(out, "IOAM loopback: 0 copies sent") {
		t.Errorf("status of the node that answers:\n%s", out)
	}
	s := source.status(t)
	if n := ioamservice.StatusOf(&s).Loopback; n.Returned == 0 || n.Sent+n.Looped > 0 {
		t.Errorf("status of the source: %+v", n)
	}
	for _, a := range []*agent{transit, source} {
		a.kill()
		transfers.await(t, 2)
	}
	must(t, nil, program, "restore")
	transfers.await(t, 2)
	transfers.end()
}
