package bench

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
)

// idleHost is a host with an interface that nothing passes, and datapaths attached to it.
type idleHost struct {
	space     *space
	index     int
	datapaths []*datapath.Datapath
}

// idleName is the interface of an idleHost.
const idleName = "bench0"

func newIdleHost() (*idleHost, error) {
	s, err := newSpace()
	if err != nil {
		return nil, err
	}
	h := &idleHost{space: s}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = idleName
	if err := s.handle.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "bench1"}); err != nil {
		s.close()
		return nil, fmt.Errorf("adding the interface %s: %w", attrs.Name, err)
	}
	link, err := s.handle.LinkByName(attrs.Name)
	if err != nil {
		s.close()
		return nil, err
	}
	h.index = link.Attrs().Index
	return h, nil
}

// open loads a datapath, which ends with the host.
func (h *idleHost) open(d *datapath.Datapath) error {
	if err := d.Open(); err != nil {
		return err
	}
	h.datapaths = append(h.datapaths, d)
	return nil
}

// attach puts a datapath on the interface.
func (h *idleHost) attach(d *datapath.Datapath) error {
	_, err := d.Attach(datapath.Target{
		Iface: flow.NewIface(0, uint32(h.index)), Name: idleName,
		Do: func(f func() error) error { return h.space.do(0, f) },
	})
	return err
}

func (h *idleHost) close() {
	for _, d := range h.datapaths {
		d.Close()
	}
	h.space.close()
}
