package obs

import "time"

// Access is who may ask the agent, and how.
type Access struct {
	Socket string `json:"socket"`
	Group  string `json:"group"` // whose members may ask over the socket, besides root
	// Loopback is the port that asks nobody for credentials; empty: none.
	Loopback string   `json:"loopback,omitempty"`
	Console  *Console `json:"console,omitempty"` // absent: no listener with authentication
	Warnings []string `json:"warnings"`
}

// Console is the listener with authentication. Counters run since the agent started.
type Console struct {
	Listen       string            `json:"listen"`
	TLS          bool              `json:"tls"`
	Certificates []Certificate     `json:"certificates"` // its own first, then the authorities of clients
	Tokens       int               `json:"tokens"`
	Users        int               `json:"users"`
	Proxies      []string          `json:"proxies"`
	Sessions     int               `json:"sessions"` // open now
	Requests     map[string]uint64 `json:"requests"` // answered, by role
	Refused      map[string]uint64 `json:"refused"`  // by reason
}

// Certificate ends some day.
type Certificate struct {
	Use    string    `json:"use"` // console or clients
	Name   string    `json:"name"`
	Issuer string    `json:"issuer"`
	Ends   time.Time `json:"ends"`
}
