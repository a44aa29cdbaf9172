package roll

import "fmt"

// Verdict is what a check, a roll or a whole report says. The order is the severity: pass < inconclusive < fail.
type Verdict int

// The zero value is no verdict: one that was never decided prints as "undecided", cannot be written, and folds to
// Inconclusive, so that nothing is passed by forgetting to decide.
const (
	undecided Verdict = iota
	Pass
	Inconclusive
	Fail
)

func (v Verdict) String() string {
	switch v {
	case Pass:
		return "pass"
	case Inconclusive:
		return "inconclusive"
	case Fail:
		return "fail"
	default:
		return "undecided"
	}
}

// MarshalText writes "pass", "inconclusive" or "fail"; an undecided verdict is an error.
func (v Verdict) MarshalText() ([]byte, error) {
	if v < Pass || v > Fail {
		return nil, fmt.Errorf("write verdict: undecided (%d)", int(v))
	}
	return []byte(v.String()), nil
}

// UnmarshalText is the inverse of MarshalText and refuses every other word.
func (v *Verdict) UnmarshalText(b []byte) error {
	switch string(b) {
	case "pass":
		*v = Pass
	case "inconclusive":
		*v = Inconclusive
	case "fail":
		*v = Fail
	default:
		return fmt.Errorf("read verdict: %q is none of pass, inconclusive, fail", b)
	}
	return nil
}

// Worst folds verdicts. Of none at all, and of any undecided one, it says Inconclusive at least: nothing judged is
// nothing passed.
func Worst(vs ...Verdict) Verdict {
	if len(vs) == 0 {
		return Inconclusive
	}
	w := Pass
	for _, v := range vs {
		if v < Pass || v > Fail {
			v = Inconclusive
		}
		w = max(w, v)
	}
	return w
}
