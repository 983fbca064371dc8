package southbound

import (
	"context"

	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// How many reports a machine may send, and how large: an agent sends one in 20 ms at most, and in the
// long run one in a few seconds. More is taken in later, and what the machine says is older then.
const (
	reportRate  = 50
	reportBurst = 200
	reportBytes = 8 << 20 // a second
)

// How many streams a machine may open: an agent waits after each that ends.
const (
	streamRate  = 10
	streamBurst = 100
)

// pace holds up a machine that asks for too much, on whichever of its streams.
type pace struct{ reports, bytes, streams *rate.Limiter }

func newPace() pace {
	return pace{
		rate.NewLimiter(reportRate, reportBurst), rate.NewLimiter(reportBytes, 4*maxRequestBytes),
		rate.NewLimiter(streamRate, streamBurst),
	}
}

func (p pace) wait(ctx context.Context, report *agentv1.Report) error {
	if err := p.reports.Wait(ctx); err != nil {
		return err
	}
	return p.bytes.WaitN(ctx, proto.Size(report))
}
