package obs

import "time"

// Topology is what is kept of what is connected with what.
type Topology struct {
	Versions int       `json:"versions"`
	Bytes    int       `json:"bytes"`
	Oldest   time.Time `json:"oldest,omitzero"`
	Newest   time.Time `json:"newest,omitzero"`
	Removed  int       `json:"removed"`         // versions that made room
	File     string    `json:"file,omitempty"`  // absent: in memory only
	Error    string    `json:"error,omitempty"` // of the file
	LLDP     string    `json:"lldp"`            // whether announcements are received, or why not
}
