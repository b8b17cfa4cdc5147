package obs

import "time"

// History is how the records on disk do.
type History struct {
	Path    string    `json:"path"`
	Bytes   uint64    `json:"bytes"`
	Size    uint64    `json:"size"`
	Files   int       `json:"files"`
	Aged    int       `json:"files_aged"`
	Records uint64    `json:"records"`
	Oldest  time.Time `json:"oldest,omitzero"`
	// Full is the begin of the oldest records that are not aged.
	Full time.Time `json:"full,omitzero"`
	// Reach is how far back it will reach at this rate, in seconds; 0: not known yet.
	Reach   float64       `json:"reach_seconds"`
	Failing string        `json:"failing,omitempty"`
	Counts  HistoryCounts `json:"counts"`
}

// HistoryCounts are what happened to it since the agent started.
type HistoryCounts struct {
	Intervals   uint64 `json:"intervals"`        // written
	Records     uint64 `json:"records"`          // likewise
	Lost        uint64 `json:"lost"`             // intervals that could not be written
	LostRecords uint64 `json:"lost_records"`     //
	GivenUp     uint64 `json:"given_up_records"` // of logs that could not be sealed, and became too large
	Torn        uint64 `json:"torn_bytes"`       // cut off the log of an agent that was killed
	Damaged     uint64 `json:"damaged"`          // files that are not what was written
	Sealed      uint64 `json:"sealed"`           // files
	Aged        uint64 `json:"aged"`             // files
	Removed     uint64 `json:"removed"`          // files that made room
	ClockSteps  uint64 `json:"clock_steps"`      // intervals that ended before the one before them
	Errors      uint64 `json:"errors"`           // of the file system
	Partial     uint64 `json:"partial_answers"`  //
}
