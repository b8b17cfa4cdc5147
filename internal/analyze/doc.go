// Package analyze is the analyzer (waymark analyze): it keeps the intervals of many agents, and answers for all of them.
// Input: frames from exporters analyzer, over TLS with client certificates. Output: a history per host on disk (package
// store/disk), and one API and console over all of them. Caller: the command line.
//
// Whose interval it is says the certificate, never the request. An interval is acknowledged when it is on disk together
// with its identity, so that it is kept exactly once, whoever is killed at any time, and whatever is sent again.
package analyze
