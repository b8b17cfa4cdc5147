package flow

import "slices"

// inPDM is the object of marked flows.
var inPDM = object[PDM]{name: "pdm", element: "waymarkPDM", at: func(r *Record) **PDM { return &r.PDM }}

// pdmFields are the fields of the object pdm, which only marked flows have.
var pdmFields = slices.Concat(
	pdmSums,
	pdmDelays("server", "server delay", "at the peer, from a request's arrival to its answer", "Server", 16, func(p *PDM) *Delays { return &p.Server }),
	pdmDelays("network", "network delay", "a round trip without the time at the peer", "Network", 22, func(p *PDM) *Delays { return &p.Network }),
)

// pdmSums are the sums.
var pdmSums = []Field{
	inPDM.sum(9, "Sent", Field{Name: "sent", Doc: "packets marked here, a GSO burst as one"},
		func(p *PDM) *uint64 { return &p.Sent }),
	inPDM.sum(10, "Received", Field{Name: "received", Doc: "packets of the peer whose marks were read and believed, a GSO burst as one"},
		func(p *PDM) *uint64 { return &p.Received }),
	inPDM.signedSum(11, "Lost", Field{
		Name: "lost", Aliases: []string{"lost"},
		Doc: "packets of the peer that did not come; one that comes after its loss was reported offsets the next loss",
	}, func(p *PDM) *int64 { return &p.Lost }),
	sometimes(inPDM.sum(12, "Reordered", Field{Name: "reordered", Title: "REORD", Doc: "packets of the peer that came behind later ones", Aliases: []string{"reordered"}},
		func(p *PDM) *uint64 { return &p.Reordered })),
	sometimes(inPDM.sum(13, "Duplicate", Field{Name: "duplicates", Title: "DUP", Doc: "packets of the peer that arrived more than once", Aliases: []string{"duplicates"}},
		func(p *PDM) *uint64 { return &p.Duplicates })),
	sometimes(inPDM.sum(14, "Suspicious", Field{
		Name: "suspicious", Title: "SUSP", Doc: "packets with impossible times, or with numbers that are not believed: kept out of the delays", Aliases: []string{"suspicious"},
	}, func(p *PDM) *uint64 { return &p.Suspicious })),
	sometimes(inPDM.sum(15, "Discarded", Field{Name: "discarded", Doc: "packets in order that do not answer the packet sent last"},
		func(p *PDM) *uint64 { return &p.Discarded })),
}

// PDMCounters are where the unsigned sums lie.
var PDMCounters = sumsOf[PDM](pdmSums)

func pdmDelays(key, title, what, part string, id uint16, times func(*PDM) *Delays) []Field {
	d := delays[PDM]{inPDM, key, title, part, id, times}
	return slices.Concat(d.sums(what), d.histogram())
}
