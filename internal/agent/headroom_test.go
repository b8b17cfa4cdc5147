package agent

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/flow"
	pdmservice "github.com/waymark-net/waymark/internal/inband/pdm/service"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/stage"
	"github.com/waymark-net/waymark/internal/topology"
)

// refusing is a probe that no interface takes.
type refusing struct {
	probe
	seen func() // while it is asked
}

func (r refusing) Attach(topology.Link, []flow.Direction, func(func() error) error) (string, error) {
	r.seen()
	return "", errors.New("no")
}

// An interface that the probe cannot be attached to keeps its MTU: nothing will be
// marked there.
func TestMTUIsRestoredWhereNothingIsAttached(t *testing.T) {
	alpha := newLab(t).Host("alpha")
	cfg := config.Default()
	cfg.History.Use = "never"
	pdmservice.Section.Edit(&cfg).Policies = []pdmservice.PolicyConfig{{To: "2001:db8::/32", Proto: "any", For: time.Hour, Interface: "*"}}
	log := slog.New(slog.DiscardHandler)
	registry := topology.NewRegistry(time.Minute, time.Now)
	keeper := newHeadroom(registry, log)
	on, err := newStages(&cfg, stage.Deps{Log: log, Headroom: keeper})
	if err != nil {
		t.Fatal(err)
	}
	link, err := linkOf(alpha)
	if err != nil {
		t.Fatal(err)
	}
	before, during := mtuOf(t, alpha), ""
	h := newHooks(registry, refusing{seen: func() { during = mtuOf(t, alpha) }}, &reservations{keeper, on.all, log}, cfg.Directions, log)
	h.add(link, nil)
	if after := mtuOf(t, alpha); during == before || after != before {
		t.Errorf("IPv6 MTU %s, %s while it was tried to attach, then %s", before, during, after)
	}
}

func linkOf(h *lab.Host) (l topology.Link, err error) {
	err = h.Do(func() error {
		name := h.Interfaces[0].Name
		found, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		l = topology.Link{Name: name, Netns: h.Netns, IfIndex: uint32(found.Attrs().Index), Kind: "veth"}
		return nil
	})
	return l, err
}

func mtuOf(t *testing.T, h *lab.Host) (mtu string) {
	t.Helper()
	err := h.Do(func() error {
		text, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + h.Interfaces[0].Name + "/mtu")
		mtu = strings.TrimSpace(string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return mtu
}
