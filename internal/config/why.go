package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Why has the thresholds of waymark why.
type Why struct {
	Compare         time.Duration `yaml:"compare" default:"24h" min:"1m" max:"8760h" reload:"yes" doc:"what is usual is what was measured in so much time before the range that is examined, as far as the history reaches back"`
	Unusual         uint32        `yaml:"unusual" default:"2" min:"1" max:"1000" reload:"yes" doc:"a delay is unusual from so many times the usual one on"`
	Samples         uint32        `yaml:"samples" default:"10" min:"1" max:"1000000" reload:"yes" doc:"a median or mean of fewer delays, or half as many handshakes, gives no verdict"`
	Share           string        `yaml:"share" default:"60%" kind:"percent" reload:"yes" doc:"a server or a hop takes most of the time from this share on"`
	ServerDelay     time.Duration `yaml:"server_delay" default:"20ms" min:"1us" max:"1h" reload:"yes" doc:"server_slow: a shorter median delay at the server gives no verdict"`
	PathDelay       time.Duration `yaml:"path_delay" default:"10ms" min:"1us" max:"1h" reload:"yes" doc:"path_delay: a hop or a path that adds less gives no verdict"`
	PathLoss        string        `yaml:"path_loss" default:"0.5%" kind:"percent" reload:"yes" doc:"path_loss: share of packets that a hop or a path loses"`
	LinkUse         string        `yaml:"link_use" default:"90%" kind:"percent" reload:"yes" doc:"link_full: share of its speed that a link carries"`
	Unanswered      string        `yaml:"unanswered" default:"5%" kind:"percent" reload:"yes" doc:"unanswered: share of the connections to a service whose repeated SYN has no answer"`
	Retransmissions string        `yaml:"retransmissions" default:"1%" kind:"percent" reload:"yes" doc:"retransmissions: share of the TCP segments of a host that it sends again"`
	GateDrops       uint32        `yaml:"gate_drops" default:"3" min:"1" reload:"yes" doc:"gate_drops: packets that a rule drops"`
	AgentLosses     uint32        `yaml:"agent_losses" default:"1" min:"1" reload:"yes" doc:"agent_losses: packets or records that are lost for one reason"`
	Coverage        string        `yaml:"coverage" default:"99%" kind:"percent" reload:"yes" doc:"agent_losses: least share of the packets of an interface that is counted"`
}

// ParsePercent reads a share like 0.5%.
func ParsePercent(s string) (float64, error) {
	digits, ok := strings.CutSuffix(strings.TrimSpace(s), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if !ok || err != nil || !(v > 0 && v <= 100) {
		return 0, fmt.Errorf("%q is no share", s)
	}
	return v / 100, nil
}

func checkPercent(s string) error {
	_, err := ParsePercent(s)
	return err
}
