package access

import (
	"crypto/x509"
	"fmt"
	"maps"
	"os"
	"os/user"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/obs"
)

// endsSoon is how long before the end of a certificate status and doctor warn.
const endsSoon = 21 * 24 * time.Hour

// Status says who may ask the agent. s may be nil: there is no console.
func (s *Server) Status(cfg *config.API, now time.Time) *obs.Access {
	a := &obs.Access{Socket: cfg.Socket, Group: groupOf(cfg.Socket), Loopback: cfg.Listen}
	if cfg.Listen != "" {
		a.Warnings = append(a.Warnings, Unprotected(cfg.Listen))
	}
	if s == nil {
		return a
	}
	set := s.settings.Load()
	c := &obs.Console{
		Listen: s.listen, TLS: set.tls != nil, Tokens: len(set.tokens), Users: len(set.users), Sessions: s.sessions.count(),
		Requests: s.requests.list(), Refused: s.refusals.list(),
	}
	if s.listener != nil {
		c.Listen = s.listener.Addr().String()
	}
	for _, p := range set.proxies {
		c.Proxies = append(c.Proxies, p.String())
	}
	if set.certificate != nil {
		c.Certificates = append(c.Certificates, describe("console", set.certificate))
	}
	for _, one := range set.authorities {
		c.Certificates = append(c.Certificates, describe("clients", one))
	}
	for _, one := range c.Certificates {
		if left := one.Ends.Sub(now); left < endsSoon {
			a.Warnings = append(a.Warnings, endText(one, left))
		}
	}
	a.Console = c
	return a
}

// Unprotected warns of a port that asks for nothing.
func Unprotected(listen string) string {
	return fmt.Sprintf("every local user can read all flows at %s (api.listen); waymark console and the section console ask for credentials", listen)
}

func endText(c obs.Certificate, left time.Duration) string {
	at := c.Ends.Format(time.DateOnly)
	if left < 0 {
		return fmt.Sprintf("the certificate %s (%s) ended on %s: renew it, then reload", c.Name, c.Use, at)
	}
	return fmt.Sprintf("the certificate %s (%s) ends on %s, in %.0f days: renew it, then reload", c.Name, c.Use, at, left.Hours()/24)
}

func describe(use string, c *x509.Certificate) obs.Certificate {
	name := nameIn(c)
	if name == "" {
		name = c.Subject.String()
	}
	return obs.Certificate{Use: use, Name: name, Issuer: c.Issuer.String(), Ends: c.NotAfter}
}

// groupOf names the group of a file; empty: there is no such file.
func groupOf(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	id := strconv.FormatUint(uint64(stat.Gid), 10)
	if g, err := user.LookupGroupId(id); err == nil {
		return g.Name
	}
	return id
}

// counts are numbers by reason or by role.
type counts struct {
	mu sync.Mutex
	by map[string]uint64
}

func (c *counts) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[string]uint64{}
	}
	c.by[what]++
}

func (c *counts) list() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.by)
}
