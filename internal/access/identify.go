package access

import (
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/api"
)

// What proves a name.
const (
	byCertificate = "certificate"
	byToken       = "token"
	byProxy       = "proxy"
	bySession     = "session"
	bySocket      = "unix socket"
)

// credentials are tried in this order. The first that a request has decides: one that is wrong is refused, whatever else
// the request has.
var credentials = []func(*Server, *http.Request, *settings) (c api.Caller, has bool, refused *api.Error){
	(*Server).byProxy, (*Server).byToken, (*Server).bySession, (*Server).byCertificate,
}

// identify finds who asks.
func (s *Server) identify(r *http.Request, set *settings) (api.Caller, *api.Error) {
	for _, find := range credentials {
		c, has, refused := find(s, r, set)
		switch {
		case refused != nil:
			return c, refused
		case has && c.Role == none:
			return c, &api.Error{Status: http.StatusForbidden, What: c.Name + " has no role here", How: "add the name to console.users"}
		case has:
			return c, nil
		}
	}
	return api.Caller{}, unauthorized("no credentials", set.remedy())
}

func unauthorized(what, how string) *api.Error {
	return &api.Error{Status: http.StatusUnauthorized, What: what, How: how}
}

// remedy names the credentials that are accepted.
func (s *settings) remedy() string {
	var ways []string
	if len(s.tokens) > 0 {
		ways = append(ways, "send Authorization: Bearer TOKEN, or log in at "+sessionPath)
	}
	if other := s.credentialsBesides(); other != "" {
		ways = append(ways, other)
	}
	return strings.Join(ways, "; or ")
}

// credentialsBesides names the credentials that are accepted besides tokens.
func (s *settings) credentialsBesides() string {
	var ways []string
	if s.pool != nil {
		ways = append(ways, "use a client certificate of "+s.issuers())
	}
	if len(s.proxies) > 0 {
		ways = append(ways, "come through the proxy")
	}
	return strings.Join(ways, "; or ")
}

func (s *settings) issuers() string {
	names := make([]string, len(s.authorities))
	for i, c := range s.authorities {
		names[i] = c.Subject.String()
	}
	return strings.Join(names, " or ")
}

// roleOf is that of a user whom a certificate or a proxy names.
func (s *settings) roleOf(name string) api.Role {
	if role, ok := s.users[name]; ok {
		return role
	}
	return s.role
}

// byProxy believes the header of a proxy. It is refused from everyone else, so that nobody takes it for a way in.
func (s *Server) byProxy(r *http.Request, set *settings) (c api.Caller, has bool, refused *api.Error) {
	names := r.Header.Values(set.header)
	if len(names) == 0 {
		return c, false, nil
	}
	how := "proxies are named in console.proxy.from"
	switch {
	case !set.isProxy(r.RemoteAddr):
		return c, true, unauthorized(fmt.Sprintf("%s is no proxy whose header %s is believed", r.RemoteAddr, set.header), how)
	case set.proxyToken != nil && !same(bearer(r), *set.proxyToken):
		return c, true, unauthorized("the proxy does not send its token", "have it send Authorization: Bearer with the token of console.proxy.token")
	case len(names) > 1 || strings.TrimSpace(names[0]) == "":
		return c, true, unauthorized("the header "+set.header+" does not name one user", "have the proxy replace it, not add to it")
	}
	name := strings.TrimSpace(names[0])
	return api.Caller{Name: name, Role: set.roleOf(name), By: byProxy}, true, nil
}

func (s *settings) isProxy(remote string) bool {
	end, err := netip.ParseAddrPort(remote)
	if err != nil {
		return false
	}
	for _, p := range s.proxies {
		if p.Contains(end.Addr().Unmap().WithZone("")) {
			return true
		}
	}
	return false
}

// bearer is the token of a request; empty: it has none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

func same(token string, want hash) bool {
	h := hashOf(token)
	return token != "" && subtle.ConstantTimeCompare(h[:], want[:]) == 1
}

func (s *Server) byToken(r *http.Request, set *settings) (c api.Caller, has bool, refused *api.Error) {
	if r.Header.Get("Authorization") == "" {
		return c, false, nil
	}
	c, ok := set.tokens[hashOf(bearer(r))]
	if !ok {
		return c, true, unauthorized("this token is not known", "it must be one whose hash is in console.tokens (waymark console token)")
	}
	return c, true, nil
}

func (s *Server) byCertificate(r *http.Request, set *settings) (c api.Caller, has bool, refused *api.Error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || set.pool == nil {
		return c, false, nil
	}
	leaf, between := r.TLS.PeerCertificates[0], x509.NewCertPool()
	for _, one := range r.TLS.PeerCertificates[1:] {
		between.AddCert(one)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots: set.pool, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return c, true, set.explain(leaf, err)
	}
	name := nameIn(leaf)
	if name == "" {
		return c, true, unauthorized("the client certificate names nobody", "it needs a common name, or a subject alternative name")
	}
	return api.Caller{Name: name, Role: set.roleOf(name), By: byCertificate}, true, nil
}

// explain says why a certificate is not accepted.
func (s *settings) explain(leaf *x509.Certificate, err error) *api.Error {
	what := fmt.Sprintf("the client certificate %s of %s: ", leaf.Subject, leaf.Issuer)
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return unauthorized(what+"another authority issued it", "use one of "+s.issuers()+", or add its authority to console.tls.client_ca")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return unauthorized(what+fmt.Sprintf("it is valid from %s to %s", leaf.NotBefore.Format(time.DateOnly), leaf.NotAfter.Format(time.DateOnly)), "renew it, or check the clocks")
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return unauthorized(what+"it is not for clients", "issue one with the extended key usage clientAuth")
	}
	return unauthorized(what+err.Error(), "use one of "+s.issuers())
}

// nameIn is the user whom a certificate names.
func nameIn(c *x509.Certificate) string {
	for _, names := range [][]string{{c.Subject.CommonName}, c.DNSNames, c.EmailAddresses} {
		if len(names) > 0 && names[0] != "" {
			return names[0]
		}
	}
	if len(c.URIs) > 0 {
		return c.URIs[0].String()
	}
	return ""
}

// hostOf is a Host header without its port, as names are compared.
func hostOf(r *http.Request) string {
	return strings.ToLower(strings.TrimSuffix(api.HostName(r.Host), "."))
}

// localAddr is the address at which a request arrived.
func localAddr(r *http.Request) netip.Addr {
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}
