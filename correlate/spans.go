package correlate

import (
	"cmp"
	"hash/maphash"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// Options are the knobs of an [Index].
type Options struct {
	// Skew is the greatest difference assumed between the clock of a span and those that stamped a pod's moments.
	// Bounds are widened by it on both sides, so that a greater skew makes phases unsure and attributions none, never
	// wrong.
	Skew time.Duration
}

// none is the slot of no pod.
const none int32 = -1

// Index finds pods by UID, by name and by IP, the last two at a moment, because both are used again. It is not changed
// after [NewIndex] and is safe for concurrent use.
type Index struct {
	skew   int64
	pods   []*roll.Pod
	phases []phases // by slot, as pods

	byUID  map[string]int32
	byName map[string]*lane // namespace/name
	// byBareName holds names that Kubernetes generated, so that no other namespace is expected to hold them.
	byBareName map[string]*lane
	byIP       map[netip.Addr]*lane
}

// NewIndex indexes the pods of a timeline, which must not change while the Index is in use.
func NewIndex(tl *roll.Timeline, o Options) *Index {
	x := &Index{
		skew:       int64(max(o.Skew, 0)),
		pods:       tl.Pods,
		phases:     make([]phases, len(tl.Pods)),
		byUID:      make(map[string]int32, len(tl.Pods)),
		byName:     make(map[string]*lane, len(tl.Pods)),
		byBareName: make(map[string]*lane, len(tl.Pods)),
		byIP:       make(map[netip.Addr]*lane, len(tl.Pods)),
	}
	names := make(map[string][]int32, len(tl.Pods))
	bare := make(map[string][]int32, len(tl.Pods))
	ips := make(map[netip.Addr][]int32, len(tl.Pods))
	for i, p := range tl.Pods {
		slot := int32(i)
		x.phases[i] = newPhases(p, x.skew)
		if p.UID != "" {
			x.byUID[p.UID] = slot
		}
		names[p.String()] = append(names[p.String()], slot)
		bare[p.Name] = append(bare[p.Name], slot)
		for _, s := range p.IPs {
			if ip, ok := parseIP(s); ok && !slices.Contains(ips[ip], slot) {
				ips[ip] = append(ips[ip], slot)
			}
		}
	}
	for name, slots := range names {
		x.byName[name] = x.nameLane(slots)
	}
	for name, slots := range bare {
		if !slices.ContainsFunc(slots, func(s int32) bool { return !generatedName(x.pods[s]) }) {
			x.byBareName[name] = x.nameLane(slots)
		}
	}
	for ip, slots := range ips {
		x.byIP[ip] = x.ipLane(slots)
	}
	return x
}

// generatedName reports whether the pod's name ends in characters drawn at random, as those of every workload do but
// StatefulSets: db-0 may exist in any namespace, recorded or not.
func generatedName(p *roll.Pod) bool {
	switch p.Workload.Kind {
	case "Deployment", "ReplicaSet", "DaemonSet", "Job":
		return true
	}
	return false
}

// Phase returns what a pod of the index was doing at t; PhaseUnknown for a pod that it does not hold.
func (x *Index) Phase(p *roll.Pod, t time.Time) roll.Phase {
	if p == nil {
		return roll.PhaseUnknown
	}
	slot, ok := x.byUID[p.UID]
	if !ok {
		return roll.PhaseUnknown
	}
	ph := &x.phases[slot]
	return ph.phase[ph.index(nanos(t), 0)]
}

// Phases returns the first and the last phase that a pod of the index may have been in at t; they are the same exactly
// when [Index.Phase] is sure. Both are PhaseUnknown for a pod that it does not hold.
func (x *Index) Phases(p *roll.Pod, t time.Time) (first, last roll.Phase) {
	if p == nil {
		return roll.PhaseUnknown, roll.PhaseUnknown
	}
	slot, ok := x.byUID[p.UID]
	if !ok {
		return roll.PhaseUnknown, roll.PhaseUnknown
	}
	ph := &x.phases[slot]
	b := ph.bounds[ph.index(nanos(t), 0)]
	return order[b[0]], order[b[1]]
}

// Pod returns the pod of that UID, nil when the index holds none.
func (x *Index) Pod(uid string) *roll.Pod {
	if slot, ok := x.byUID[uid]; ok {
		return x.pods[slot]
	}
	return nil
}

// Flags of a span while it is being correlated.
const (
	flagAnonymous uint8 = 1 << iota // its resource says nothing about a pod, so the other side of the call may
	flagMulti                       // more than one server span has this client span as its parent
	flagConflict                    // its peers, by those, are different pods
	flagByAddress                   // its peer was found by an address
)

// Correlate fills in, in place, what correlate owns of each span: Pod, Attribution, Phase, EndPhase, Peer,
// PeerAttribution, PeerPhase, PeerEndPhase and Outcome. What is ambiguous stays nil and [roll.AttributedByNone]. It is
// linear in the number of spans; their order does not matter.
//
// A span's own pod comes from its resource, by the first of these that is there: k8s.pod.uid, k8s.pod.name,
// service.instance.id and host.name where they name a known pod, k8s.pod.ip. A k8s.pod.uid that the timeline does not
// hold is a pod that was not recorded: weaker attributes are not asked then.
//
// A peer comes from the span at the other end of the same call, else from an address that belonged to one pod alone for
// as long as the span ran. The address of a pod that has exited stays that pod's until another pod may have it: a call
// to it is refused because of that pod (grpc/grpc-go#4650).
func (x *Index) Correlate(spans []roll.Span) {
	n := len(spans)
	own := make([]int32, n)
	peer := make([]int32, n)
	link := make([]int32, n) // server: its client; client: its first server
	flags := make([]uint8, n)
	calls := newCallTable(n)

	// Each span's own pod, and the table of client spans.
	known := make(map[*roll.Resource]identity)
	var lastResource *roll.Resource
	var id identity
	for i := range spans {
		s := &spans[i]
		if i == 0 || s.Resource != lastResource {
			var ok bool
			if id, ok = known[s.Resource]; !ok {
				id = x.identify(s.Resource)
				known[s.Resource] = id
			}
			lastResource = s.Resource
		}
		own[i], peer[i], link[i] = id.slot, none, none
		if id.lane != nil {
			start, end := spanNanos(s)
			own[i] = id.lane.owner(start, end)
		}
		s.Attribution, s.PeerAttribution = roll.AttributedByNone, roll.AttributedByNone
		if own[i] != none {
			s.Attribution = id.by
		}
		if id.anonymous {
			flags[i] = flagAnonymous
		}
		if s.Kind == roll.KindClient {
			calls.insert(spans, int32(i))
		}
	}

	// Peers by the other side of the call.
	for i := range spans {
		s := &spans[i]
		if s.Kind != roll.KindServer || s.ParentID.IsZero() {
			continue
		}
		c := calls.find(spans, &s.TraceID, &s.ParentID)
		if c == none {
			continue
		}
		link[i] = c
		if own[c] != none {
			peer[i], s.PeerAttribution = own[c], roll.AttributedByParentChild
		}
		if link[c] == none {
			link[c] = int32(i)
		} else {
			flags[c] |= flagMulti
		}
		if own[i] == none {
			continue
		}
		if peer[c] == none {
			peer[c], spans[c].PeerAttribution = own[i], roll.AttributedByParentChild
		} else if peer[c] != own[i] {
			flags[c] |= flagConflict
		}
	}

	// Peers by address, and what became of the calls.
	addresses := make(map[string]address)
	for i := range spans {
		s := &spans[i]
		f := scan(s.Attributes)
		s.Outcome = outcome(s, &f)
		switch {
		case flags[i]&flagConflict != 0:
			peer[i], s.PeerAttribution = none, roll.AttributedByNone
		case peer[i] == none:
			a := x.peerAddress(addresses, s.Kind, &f)
			if a == nil {
				break
			}
			start, end := spanNanos(s)
			if peer[i] = a.owner(start, end); peer[i] != none {
				s.PeerAttribution = roll.AttributedByPeerAddress
				flags[i] |= flagByAddress
			}
		}
	}

	// A span whose resource says nothing is the pod that the other side of the call had on the line.
	for i := range spans {
		if spans[i].Kind != roll.KindServer || link[i] == none {
			continue
		}
		c := link[i]
		if flags[c]&flagMulti != 0 {
			continue // which of the calls the address belongs to cannot be told
		}
		adopt := func(to, from int32) {
			if own[to] == none && flags[to]&flagAnonymous != 0 && flags[from]&flagByAddress != 0 {
				own[to], spans[to].Attribution = peer[from], roll.AttributedByParentChild
			}
		}
		adopt(int32(i), c)
		adopt(c, int32(i))
	}

	for i := range spans {
		s := &spans[i]
		start, end := spanNanos(s)
		s.Pod, s.Phase, s.EndPhase = x.at(own[i], start, end)
		s.Peer, s.PeerPhase, s.PeerEndPhase = x.at(peer[i], start, end)
		if s.Outcome == roll.OutcomeError && s.Kind == roll.KindClient && link[i] != none && flags[i]&flagMulti == 0 &&
			x.cancelledByClient(s, &spans[link[i]]) {
			s.Outcome = roll.OutcomeCancelled
		}
	}
}

func (x *Index) at(slot int32, start, end int64) (*roll.Pod, roll.Phase, roll.Phase) {
	if slot == none {
		return nil, roll.PhaseUnknown, roll.PhaseUnknown
	}
	first, last := x.phases[slot].during(start, end)
	return x.pods[slot], first, last
}

// identity is what a resource says of its pod: a pod, or a lane that knows by time.
type identity struct {
	slot      int32
	lane      *lane
	by        roll.Attribution
	anonymous bool
}

func (x *Index) identify(r *roll.Resource) identity {
	if r == nil {
		return identity{slot: none, anonymous: true}
	}
	a := r.Attributes
	if uid := a.First("k8s.pod.uid"); uid != "" {
		if slot, ok := x.byUID[uid]; ok {
			return identity{slot: slot, by: roll.AttributedByPodUID}
		}
		return identity{slot: none}
	}
	namespace := a.First("k8s.namespace.name")
	if name := a.First("k8s.pod.name"); name != "" {
		return identity{slot: none, lane: x.named(namespace, name), by: roll.AttributedByPodName}
	}
	if s := a.First("service.instance.id"); s != "" {
		if slot, ok := x.byUID[s]; ok {
			return identity{slot: slot, by: roll.AttributedByInstanceID}
		}
		l := x.named(namespace, s)
		if l == nil {
			l = x.instance(s)
		}
		if l != nil {
			return identity{slot: none, lane: l, by: roll.AttributedByInstanceID}
		}
	}
	if s := a.First("host.name"); s != "" {
		if l := x.named(namespace, s); l != nil {
			return identity{slot: none, lane: l, by: roll.AttributedByHostName}
		}
	}
	if s := a.First("k8s.pod.ip"); s != "" {
		ip, _ := parseIP(s)
		return identity{slot: none, lane: x.byIP[ip], by: roll.AttributedByIP}
	}
	return identity{slot: none, anonymous: true}
}

func (x *Index) named(namespace, name string) *lane {
	if namespace == "" {
		return x.byBareName[name]
	}
	return x.byName[namespace+"/"+name]
}

// instance reads namespace.pod.container, the service.instance.id that OpenTelemetry's semantic conventions
// (non-normative Kubernetes attributes) derive. Neither a namespace's nor a container's name holds a dot.
func (x *Index) instance(s string) *lane {
	first, last := strings.IndexByte(s, '.'), strings.LastIndexByte(s, '.')
	if first < 0 || first == last {
		return nil
	}
	return x.byName[s[:first]+"/"+s[first+1:last]]
}

// address is what is known of an address as text.
type address struct {
	ip   bool
	lane *lane
}

// peerAddress returns the lane of the address on the other end of the call, nil when there is none. What the connection
// had wins over what was dialled; one that is an IP but no pod's (a Service's, a proxy's, a node's) decides as well.
func (x *Index) peerAddress(cache map[string]address, kind roll.SpanKind, f *facts) *lane {
	if kind != roll.KindClient && kind != roll.KindServer {
		return nil
	}
	candidates := [...]string{f.peer, f.server}
	if kind == roll.KindServer {
		candidates[1] = "" // on a server span it is the server itself
	}
	for _, s := range candidates {
		if s == "" {
			continue
		}
		a, ok := cache[s]
		if !ok {
			var ip netip.Addr
			if ip, a.ip = parseIP(s); a.ip {
				a.lane = x.byIP[ip]
			}
			cache[s] = a
		}
		if a.ip {
			return a.lane
		}
	}
	return nil
}

// parseIP reads an IP, also one with a port. IPv4 in IPv6 is IPv4; a zone is dropped.
func parseIP(s string) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(s)
	if err != nil {
		ap, err := netip.ParseAddrPort(s)
		if err != nil {
			return netip.Addr{}, false
		}
		ip = ap.Addr()
	}
	return ip.Unmap().WithZone(""), true
}

// lane says which pod, alone, may have had a name or an IP: owners[i] from starts[i] until starts[i+1], none before the
// first.
type lane struct {
	starts []int64
	owners []int32
}

// owner returns the one pod that had it from start to end, both included.
func (l *lane) owner(start, end int64) int32 {
	i, exact := slices.BinarySearch(l.starts, start)
	if !exact {
		i--
	}
	if i < 0 {
		return none
	}
	o := l.owners[i]
	for i++; i < len(l.starts) && l.starts[i] <= end && o != none; i++ {
		if l.owners[i] != o {
			return none
		}
	}
	return o
}

// claim is a time, [from, to), in which a pod may have had something.
type claim struct {
	slot     int32
	from, to int64
}

// newLane sweeps over the claims: where exactly one is open, its pod is the owner.
func newLane(claims []claim) *lane {
	type edge struct {
		at   int64
		slot int32
		open int32 // +1, −1
	}
	edges := make([]edge, 0, 2*len(claims))
	for _, c := range claims {
		if c.from < c.to {
			edges = append(edges, edge{c.from, c.slot, 1}, edge{c.to, c.slot, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	l := &lane{}
	var open int32
	var sum int64 // of the slots of the open claims: with one open, its slot
	for i, e := range edges {
		open, sum = open+e.open, sum+int64(e.open)*int64(e.slot)
		if i+1 < len(edges) && edges[i+1].at == e.at {
			continue
		}
		o := none
		if open == 1 {
			o = int32(sum)
		}
		if k := len(l.owners); k > 0 && l.owners[k-1] == o {
			continue
		}
		l.starts, l.owners = append(l.starts, e.at), append(l.owners, o)
	}
	return l
}

// nameLane tells pods of one name apart. The API server lets a name be used again only once the old object is gone;
// the old containers may outlive it (a forced deletion), so a pod may have emitted spans until its exit was seen, and
// without that for ever. With no successor a name stays its pod's.
func (x *Index) nameLane(slots []int32) *lane {
	claims := make([]claim, len(slots))
	for i, s := range slots {
		claims[i] = claim{s, minus(earliest(x.pods[s].Created), x.skew), math.MaxInt64}
	}
	slices.SortFunc(claims, func(a, b claim) int { return cmp.Compare(a.from, b.from) })
	for i := range claims[:len(claims)-1] {
		if e := x.pods[claims[i].slot].Exited; !e.IsZero() {
			claims[i].to = max(plus(nanos(e.Latest), x.skew), claims[i+1].from)
		}
	}
	return newLane(claims)
}

// ipLane tells pods of one IP apart. A pod has its IP by the time it is Ready at the latest, and keeps it until its
// exit at the earliest; a pod of the host network shares its IP with others, which shows when two have it at once:
// then it is nobody's.
func (x *Index) ipLane(slots []int32) *lane {
	type tenure struct{ certain, free int64 } // has it from certain until free at least
	tenures := make([]tenure, len(slots))
	for i, s := range slots {
		p := x.pods[s]
		t := tenure{math.MaxInt64, math.MaxInt64}
		if !p.Ready.IsZero() {
			t.certain = nanos(p.Ready.Latest)
		}
		switch {
		case !p.Exited.IsZero():
			t.free = nanos(p.Exited.Earliest)
		case !p.Requested.IsZero():
			t.free = nanos(p.Requested.Earliest)
		case ending(p):
			t.free = t.certain
		}
		tenures[i] = t
	}

	order := slices.Clone(tenures)
	slices.SortFunc(order, func(a, b tenure) int { return cmp.Compare(a.certain, b.certain) })
	busy := int64(math.MinInt64)
	for _, t := range order {
		if t.certain == math.MaxInt64 || t.certain >= t.free {
			continue
		}
		if t.certain < busy {
			return newLane(nil)
		}
		busy = t.free
	}

	frees := make([]int64, 0, len(slots))
	certains := make([]int64, 0, len(slots))
	for _, t := range tenures {
		frees, certains = append(frees, t.free), append(certains, t.certain)
	}
	slices.Sort(frees)
	slices.Sort(certains)
	claims := make([]claim, len(slots))
	for i, s := range slots {
		t := tenures[i]
		c := claim{s, minus(earliest(x.pods[s].Created), x.skew), math.MaxInt64}
		// Those that left before this one was Ready had the IP before it.
		if t.certain != math.MaxInt64 && t.certain < t.free {
			if k, exact := slices.BinarySearch(frees, t.certain); exact || k > 0 {
				if !exact {
					k--
				}
				c.from = max(c.from, minus(frees[k], x.skew))
			}
		}
		// It may have the IP until another one has it for certain.
		if t.free != math.MaxInt64 {
			k, _ := slices.BinarySearch(certains, t.free)
			if k < len(certains) && t.certain == t.free && certains[k] == t.certain {
				k++ // itself
			}
			if k < len(certains) && certains[k] != math.MaxInt64 {
				c.to = plus(certains[k], x.skew)
			}
		}
		claims[i] = c
	}
	return newLane(claims)
}

// ending reports whether anything says that the pod's life ends.
func ending(p *roll.Pod) bool {
	return p.Deleted || !p.Requested.IsZero() || !p.Signaled.IsZero() || !p.Removed.IsZero()
}

// order is the phases by number; phase k begins with moment k (1 Created … 5 Exited).
var order = [...]roll.Phase{
	roll.PhaseBefore, roll.PhaseStartup, roll.PhaseServing, roll.PhasePreStop, roll.PhaseDrain, roll.PhaseAfterExit,
}

// phases is a pod's life: phase[i] from starts[i] until starts[i+1]. starts[0] is the beginning of time.
type phases struct {
	starts []int64
	phase  []roll.Phase
	bounds [][2]int8 // the first and last phase that are possible, by number
}

// newPhases precomputes a pod's phases. A moment has passed for certain from its Latest on, and may have from its
// Earliest on; a moment that was not observed but may have been there leaves the phases around it unsure.
func newPhases(p *roll.Pod, skew int64) phases {
	requested := p.Requested
	if seen := p.DeletionSeen; !seen.IsZero() && !seen.Before(requested.Earliest) && seen.Before(requested.Latest) {
		requested.Latest = seen // the watch had it by then, whatever the rest of the second
	}
	moments := [...]roll.Instant{{}, p.Created, p.Ready, requested, p.Signaled, p.Exited}
	ends := ending(p)
	at := func(t int64) [2]int8 {
		var may [len(moments)]bool
		lo, hi := 0, 0
		for k := 1; k < len(moments); k++ {
			switch m := moments[k]; {
			case !m.IsZero():
				may[k] = t >= minus(nanos(m.Earliest), skew)
				if t >= plus(nanos(m.Latest), skew) {
					lo = k
				}
			case k == 1:
				may[k] = true
			case k == 2: // Ready
				may[k] = may[1]
			case k == 3: // Requested
				may[k] = ends && may[1]
			default: // Signaled, Exited: because of the deletion
				may[k] = ends && may[3]
			}
			if may[k] {
				hi = k
			}
		}
		return [2]int8{int8(lo), int8(max(lo, hi))}
	}

	edges := make([]int64, 1, 2*len(moments))
	edges[0] = math.MinInt64
	for _, m := range moments {
		if !m.IsZero() {
			edges = append(edges, minus(nanos(m.Earliest), skew), plus(nanos(m.Latest), skew))
		}
	}
	slices.Sort(edges)
	var ph phases
	for _, e := range slices.Compact(edges) {
		b := at(e)
		if k := len(ph.bounds); k > 0 && ph.bounds[k-1] == b {
			continue
		}
		phase := roll.PhaseUnsure
		if b[0] == b[1] {
			phase = order[b[0]]
		}
		ph.starts, ph.phase, ph.bounds = append(ph.starts, e), append(ph.phase, phase), append(ph.bounds, b)
	}
	return ph
}

// index returns the last i with starts[i] ≤ t, which is not before from.
func (ph *phases) index(t int64, from int) int {
	for from+1 < len(ph.starts) && ph.starts[from+1] <= t {
		from++
	}
	return from
}

// during returns the phases at start and at end, start ≤ end.
func (ph *phases) during(start, end int64) (first, last roll.Phase) {
	i := ph.index(start, 0)
	return ph.phase[i], ph.phase[ph.index(end, i)]
}

// callTable finds client spans by trace and span id: an open-addressed hash table of indexes, seeded so that no
// choice of ids makes it slow.
type callTable struct {
	seed  maphash.Seed
	slots []callSlot
	shift uint
}

// callSlot is empty when ref is 0; ref is an index + 1, negative when two client spans have the same ids.
type callSlot struct {
	hash uint32
	ref  int32
}

func newCallTable(n int) *callTable {
	size := uint(bits.Len(uint(max(n, 8)))) // more slots than spans, and a quarter of them empty at least
	if n > 1<<size/4*3 {
		size++
	}
	return &callTable{seed: maphash.MakeSeed(), slots: make([]callSlot, 1<<size), shift: 64 - size}
}

func (t *callTable) hash(trace *roll.TraceID, span *roll.SpanID) uint64 {
	var key [len(trace) + len(span)]byte
	copy(key[:], trace[:])
	copy(key[len(trace):], span[:])
	return maphash.Bytes(t.seed, key[:])
}

// slot returns where the ids are, or the empty slot where they belong.
func (t *callTable) slot(spans []roll.Span, h uint64, trace *roll.TraceID, span *roll.SpanID) *callSlot {
	mask := uint64(len(t.slots) - 1)
	for k := h >> t.shift; ; k = (k + 1) & mask {
		s := &t.slots[k]
		if s.ref == 0 {
			return s
		}
		if s.hash == uint32(h) {
			if c := &spans[max(s.ref, -s.ref)-1]; c.SpanID == *span && c.TraceID == *trace {
				return s
			}
		}
	}
}

func (t *callTable) insert(spans []roll.Span, i int32) {
	c := &spans[i]
	h := t.hash(&c.TraceID, &c.SpanID)
	if s := t.slot(spans, h, &c.TraceID, &c.SpanID); s.ref == 0 {
		*s = callSlot{uint32(h), i + 1}
	} else if s.ref > 0 {
		s.ref = -s.ref
	}
}

// find returns the one client span of these ids, none when there is none or more than one.
func (t *callTable) find(spans []roll.Span, trace *roll.TraceID, span *roll.SpanID) int32 {
	return max(t.slot(spans, t.hash(trace, span), trace, span).ref-1, none)
}

// AssignWindows returns, for each window, the indexes of the spans that overlap it as [roll.Span.Overlaps] says, in
// ascending order. It takes time in O(n log n) and the size of the result, whatever the lengths of spans and windows.
func AssignWindows(spans []roll.Span, windows []roll.Range) [][]int32 {
	out := make([][]int32, len(windows))
	if len(windows) == 0 || len(spans) == 0 {
		return out
	}
	// Spans come sorted by start; if they do not, nothing may be lost for it.
	starts := make([]int64, len(spans))
	sorted := true
	for i := range spans {
		starts[i] = nanos(spans[i].Start)
		sorted = sorted && (i == 0 || starts[i-1] <= starts[i])
	}
	var perm []int32
	if !sorted {
		perm = make([]int32, len(spans))
		for i := range perm {
			perm[i] = int32(i)
		}
		slices.SortStableFunc(perm, func(a, b int32) int { return cmp.Compare(starts[a], starts[b]) })
		byStart := make([]int64, len(starts))
		for k, i := range perm {
			byStart[k] = starts[i]
		}
		starts = byStart
	}
	// ends is a tree of the latest end: leaf k at size+k, its parent at half of that.
	size := 1 << bits.Len(uint(len(spans)-1))
	ends := make([]int64, 2*size)
	for k := range size {
		ends[size+k] = math.MinInt64
		if k < len(spans) {
			i := k
			if perm != nil {
				i = int(perm[k])
			}
			ends[size+k] = plus(starts[k], int64(spans[i].Duration))
		}
	}
	for k := size - 1; k > 0; k-- {
		ends[k] = max(ends[2*k], ends[2*k+1])
	}

	for w, r := range windows {
		from, to := nanos(r.Start), nanos(r.End)
		first, _ := slices.BinarySearch(starts, from)
		last, _ := slices.BinarySearch(starts, to)
		// Those before first overlap if they end late enough.
		var idx []int32
		var visit func(node, lo, width int)
		visit = func(node, lo, width int) {
			if lo >= min(first, last) || ends[node] < from {
				return
			}
			if width == 1 {
				idx = append(idx, int32(lo))
				return
			}
			visit(2*node, lo, width/2)
			visit(2*node+1, lo+width/2, width/2)
		}
		visit(1, 0, size)
		idx = slices.Grow(idx, max(last-first, 0))
		for k := first; k < last; k++ {
			if ends[size+k] >= from { // always, but for a span that ends before it starts
				idx = append(idx, int32(k))
			}
		}
		if perm != nil {
			for k := range idx {
				idx[k] = perm[idx[k]]
			}
			slices.Sort(idx)
		}
		out[w] = idx
	}
	return out
}

// spanNanos returns a span's bounds, end ≥ start.
func spanNanos(s *roll.Span) (start, end int64) {
	start = nanos(s.Start)
	return start, plus(start, int64(max(s.Duration, 0)))
}

const (
	minSeconds = math.MinInt64/1_000_000_000 + 1
	maxSeconds = math.MaxInt64/1_000_000_000 - 1
)

// nanos is t in Unix nanoseconds; a t before 1677 or after 2262 (the zero time is) is as far away as can be.
func nanos(t time.Time) int64 {
	switch sec := t.Unix(); {
	case sec < minSeconds:
		return math.MinInt64
	case sec > maxSeconds:
		return math.MaxInt64
	}
	return t.UnixNano()
}

func earliest(i roll.Instant) int64 {
	if i.IsZero() {
		return math.MinInt64
	}
	return nanos(i.Earliest)
}

// plus is t + d without overflow; the ends of time stay where they are.
func plus(t, d int64) int64 {
	switch {
	case t == math.MinInt64 || t == math.MaxInt64:
		return t
	case d > 0 && t > math.MaxInt64-d:
		return math.MaxInt64
	case d < 0 && t < math.MinInt64-d:
		return math.MinInt64
	}
	return t + d
}

func minus(t, d int64) int64 { return plus(t, -d) }
