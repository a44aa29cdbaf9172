package tempo

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"time"

	"github.com/rolltrace/rolltrace/query"
	"github.com/rolltrace/rolltrace/roll"
)

// CaughtUp waits until 36 s after end, when Tempo 3 lets itself be asked about end and its live store has put idle
// traces where searches look, and then until two counts of the last two minutes agree.
func (c *Client) CaughtUp(ctx context.Context, end time.Time) (string, []roll.Gap) {
	late := func(why string) []roll.Gap {
		return []roll.Gap{{Reason: roll.GapNotCaughtUp, From: end.Add(-settle), To: end, Detail: why}}
	}
	rule := fmt.Sprintf("Tempo was asked no sooner than %s after the end", settle)
	if err := c.Probe(ctx); err != nil {
		return rule, late("the wait for Tempo failed: " + oneLine(err.Error()))
	}
	if err := sleep(ctx, end.Add(settle).Sub(c.now())); err != nil {
		return rule, late(fmt.Sprintf("time ran out %s before Tempo can be asked about the end",
			end.Add(settle).Sub(c.now()).Round(time.Second)))
	}
	w := secs{end.Unix() - 120, end.Unix() + 1}
	var before map[class]int
	for look := 0; look <= looks+1; look++ {
		var n map[class]int
		err := c.retry(ctx, func() (err error) {
			n, err = c.countHTTP(ctx, filter(query.Selection{})+count, w.from, w.to)
			return err
		})
		switch {
		case ctx.Err() != nil:
			return rule, late("time ran out before two counts agreed")
		case err != nil && (kindOf(err) == failQuery || kindOf(err) == failNotTempo):
			return rule + "; it cannot count spans, so whether more arrive is not known", nil
		case err != nil:
			return rule, late("count spans: " + oneLine(err.Error()))
		case look > 0 && maps.Equal(n, before):
			return rule + "; two counts of the last two minutes agree", nil
		}
		before = n
		if err := sleep(ctx, c.pause); err != nil {
			return rule, late("time ran out before two counts agreed")
		}
	}
	return rule, late("spans of the last two minutes still keep arriving")
}

var versionText = regexp.MustCompile(`^v?(\d+)\.(\d+)`)

// versionGaps names a version outside of what this package knows. A server that does not say is taken as it behaves.
func (c *Client) versionGaps() []roll.Gap {
	m := versionText.FindStringSubmatch(c.version)
	if m == nil {
		return nil
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	if major == 2 && minor >= 4 || major == 3 {
		return nil
	}
	return []roll.Gap{{
		Reason: roll.GapUnsupported,
		Detail: fmt.Sprintf("Tempo %s is not one of 2.4 to 3.x, whose ways of cutting an answer are known", oneLine(c.version)),
	}}
}
