// Package e2e runs the program as a user and as an attacker would: the binary
// itself, on hosts of a lab, with configurations, signals, faults and the
// collectors that others wrote. In comes the source, built here, or the binary
// that E2E_BINARY names; nothing of the agent is called in this process.
package e2e
