package assertions

import (
	"fmt"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// ControlFound says whether the same query finds error spans where it is not expected to find none.
var ControlFound = &Assertion{
	ID:     "control",
	Title:  "the same query finds error spans outside the windows",
	Global: true,
	Doc: `A query that can find no error proves nothing by finding none: a wrong tenant, a service that exports no status, a
misspelt attribute all look like a clean roll. So the same query is asked outside the rolls' windows as well.

**Fails** never.

**Inconclusive** only when a control was required (--control-required) and no error span was found, or it could not be
looked for.

**What to do:** cause an error on purpose before or after the roll, while the recording runs, or name a range in which there was one.`,
	Check: checkControl,
}

func checkControl(ev *Evidence, _ Params) Outcome {
	c := ev.Control
	if c == nil {
		return Outcome{Summary: "no control was looked for"}
	}
	var out Outcome
	errors, services := 0, map[string]bool{}
	var first, last time.Time
	for i := range c.Spans {
		s := &c.Spans[i]
		if s.Status != roll.StatusError {
			continue
		}
		errors++
		services[s.Resource.Service()] = true
		if first.IsZero() || s.Start.Before(first) {
			first = s.Start
		}
		if s.Start.After(last) {
			last = s.Start
		}
	}
	where := rangesText(c.Ranges)
	switch {
	case len(c.Ranges) == 0:
		out.Summary = "no control: the recording holds no time outside the rolls' windows"
	case errors > 0:
		out.Summary = fmt.Sprintf("the same query finds %s of %s outside the windows, from %s to %s (looked in %s)",
			plural(errors, "error span"), plural(len(services), "service"), stamp(first), stamp(last), where)
	default:
		out.Summary = "the same query finds no error span outside the windows (looked in " + where + "): nothing shows that it could"
	}
	if errors > 0 || !c.Required {
		return out
	}
	addGaps(&out, c.Gaps...)
	addGaps(&out, roll.Gap{
		Reason: roll.GapNoControl,
		Detail: "a control was required, and no error span was found outside the windows in " + where,
	})
	return out
}

func rangesText(rs []roll.Range) string {
	switch len(rs) {
	case 0:
		return "no time at all"
	case 1:
		return stamp(rs[0].Start) + " to " + stamp(rs[0].End)
	default:
		return fmt.Sprintf("%d ranges from %s to %s", len(rs), stamp(rs[0].Start), stamp(rs[len(rs)-1].End))
	}
}

// stamp is RFC 3339 with milliseconds, UTC.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
