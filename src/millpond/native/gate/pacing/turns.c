// Slices of one class that want the card at the same time take turns on it: whose device time, divided by its guarantee,
// is least goes next (start-time fair queueing: Goyal, Vin and Cheng, SIGCOMM 1996). In its turn a slice that would use the
// whole card is alone, so what it measures as its own time is its own. What others would leave goes to those next in order,
// beside them; and while all together leave room, nobody waits (`demand.h`).
//
// Nothing in the card file is trusted: a wait has an end, and when turns do not come round the slice goes on without them
// for a while, on the driver's time slicing, and counts that.
#include "turns.h"

#include "budget.h"
#include "demand.h"
#include "measure.h"

#define ACTIVE_NS 20000000ull         // how long after its last work a slice still counts as wanting the card
#define REST_NS 1000000ull            // without work for so long a slice rests, whatever it counts as
#define STALE_NS 50000000ull          // a holder or waiter that has said nothing for so long is gone
#define LONGEST_WORK_NS 2000000000ull // beyond which nobody's announcement is believed
#define SILENT_NS 200000000ull        // who lives says twice a millisecond that it has work on the card
#define LONGEST_AWAY_NS 1000000000ull // said again well before it is over
#define PLAIN_NS 10000000000ull       // how long to go on without turns when they do not come round
#define QUANTUM_NS 5000000ull         // a turn
#define SETTLING_NS 1000000ull        // at its beginning, while work of others may be on the card
#define LONGEST_DEBT_NS 500000000ull  // that others are made to wait for, when they had more than was known
#define OVERLAP_NS 200000ull          // of its work that may be left when it is passed on: as long as the next takes to come
#define WINDOW_NS 500000ull           // a higher class counts as active for so long after its last work
#define ABOUT_NS 2000000000ull        // and as about to return
#define ROOM_MILLI 900                // of the card, which all together may want before they take turns
#define LEAST_ROOM_MILLI 20           // that is worth going beside others
#define NEARLY_MILLI 50               // that it may want beyond the room it has
#define BESIDE_NS 2000000ull          // work in flight of one that would use more than the room it has

static uint64_t plain_until_ns;     // without turns up to then
static uint64_t waiting_since_ns;   // this process; 0 when it does not wait
static bool beside;                 // this process goes beside the holder of the turn
static uint32_t room_milli;         // that this process goes in beside others; 0 when it does not, or needs no more
static bool modest;                 // the slice would use no more than its share, and takes no part in turns
static uint64_t held_since_ns;      // when this process saw that the turn is its slice's; 0 when it is not

static uint64_t present;            // bits: whose places on the card are taken, when last looked at; its own is

#define FOR_PRESENT(index) \
    for (uint64_t places_ = present, index; places_ && (index = (uint64_t)__builtin_ctzll(places_), true); places_ &= places_ - 1)

void turn_look(void) {
    present = 1ull << gate.member;
    for (unsigned index = 0; index < GATE_MEMBERS; index++) present |= (uint64_t)!!gate.card->member[index].present << index;
}

static uint32_t own_class(void) {
    uint32_t class = gate.control->share_class;
    return class < GATE_CLASSES ? class : GATE_BACKFILL;
}

static struct gate_turn *own_turn(void) { return &gate.card->turn[own_class()]; }
static struct gate_member *self(void) { return &gate.card->member[gate.member]; }

static uint64_t weighted(uint64_t busy_ns) {
    uint64_t guarantee = gate.control->guarantee_milli;
    return busy_ns * 1000 / (guarantee ? guarantee : 1);
}

static bool is_peer(unsigned index) { return index != gate.member && gate.card->member[index].present == own_class() + 1; }

// What it announced is believed only while it goes on saying so: else it was killed, or stopped, with work on the card.
static bool is_believable(const struct gate_member *member, uint64_t now) {
    uint64_t until = member->active_until_ns;
    return until <= now + ACTIVE_NS || (until < now + LONGEST_WORK_NS + ACTIVE_NS && member->active_ns + SILENT_NS > now);
}

static bool is_active(const struct gate_member *member, uint64_t now) {
    return member->active_until_ns > now && is_believable(member, now);
}

static bool is_waiting(const struct gate_member *member, uint64_t now) {
    uint64_t since = member->waiting_ns;
    return since && since <= now + STALE_NS && since + STALE_NS > now;
}

static bool is_active_peer(unsigned index, uint64_t now) {
    return is_peer(index) && is_active(&gate.card->member[index], now);
}

static uint64_t weight_of(const struct gate_member *member) {
    uint32_t guarantee = member->guarantee_milli;
    return guarantee < WHOLE_CARD ? guarantee : WHOLE_CARD;
}

// Of so much of the card's time, in thousandths, one's part among many whose guarantees are so much together: and no more
// than the driver would give it, which lets all take equal turns.
static uint32_t part_of(uint32_t left, uint64_t guarantee, uint64_t all, uint64_t many) {
    uint64_t part = guarantee * many < all ? left * guarantee / all : left / many;
    return (uint32_t)part;
}

// What a slice has among those who want the card now: its part of what those leave who would use no more than theirs.
static uint32_t share_of(const struct gate_member *member, uint64_t now) {
    uint64_t content = 0, before;  // bits: whose demand is taken off already
    uint32_t left, part;
    do {
        uint64_t all = 0, many = 0;
        before = content, left = WHOLE_CARD;
        FOR_PRESENT(index) {
            const struct gate_member *other = &gate.card->member[index];
            if (index != gate.member && !is_active_peer(index, now)) continue;
            uint32_t demand = content >> index & 1 ? demand_of(other, now) : 0;
            left = left > demand ? left - demand : 0;
            if (!(content >> index & 1)) all += weight_of(other), many++;
        }
        if (!all || !many) return 0;
        part = part_of(left, weight_of(member), all, many);
        FOR_PRESENT(index) {
            const struct gate_member *other = &gate.card->member[index];
            if ((index != gate.member && !is_active_peer(index, now)) || other == member) continue;
            if (demand_of(other, now) <= part_of(left, weight_of(other), all, many)) content |= 1ull << index;
        }
    } while (content != before);
    return part;
}

static bool keeps_to(const struct gate_member *member, uint32_t share, uint64_t now) {
    uint32_t demand = demand_of(member, now);
    return share && demand < WHOLE_CARD && demand <= share + share / 16;
}

static bool is_modest(const struct gate_member *member, uint64_t now) { return keeps_to(member, share_of(member, now), now); }

bool turn_crowded(uint64_t now) {
    uint32_t wanted = 0;
    FOR_PRESENT(index)
        if (is_active_peer(index, now)) wanted += demand_of(&gate.card->member[index], now);
    return wanted && wanted + demand_of(self(), now) > ROOM_MILLI;
}

// Whether all who want the card use a part of it only, about the same, and have equal guarantees. Then the driver's own equal
// turns, which are shorter, give each what it should have; and more of them together keep the card busier than those for
// whose parts there is room would.
static bool are_alike(uint64_t now) {
    uint32_t least = demand_of(self(), now), most = least;
    FOR_PRESENT(index) {
        const struct gate_member *member = &gate.card->member[index];
        if (!is_active_peer(index, now)) continue;
        if (weight_of(member) != weight_of(self())) return false;
        uint32_t demand = demand_of(member, now);
        least = demand < least ? demand : least;
        most = demand > most ? demand : most;
    }
    return most < WHOLE_CARD && most <= 2 * least;
}

bool turn_together(uint64_t now) { return turn_crowded(now) && are_alike(now); }

bool turn_contended(uint64_t now) { return now >= plain_until_ns && turn_crowded(now) && !are_alike(now); }

// Whether one virtual time is before another; whatever a peer has written, the distance decides.
static bool is_before(uint64_t one, uint64_t other) { return (int64_t)(one - other) < 0; }

#define FARTHEST_NS ((int64_t)1 << 40)  // between virtual times: beyond it somebody has written what he likes

static bool is_far(uint64_t one, uint64_t other) {
    int64_t distance = (int64_t)(one - other);
    return distance > FARTHEST_NS || distance < -FARTHEST_NS;
}

// Nothing is taken from one that is far from this slice while another is not. One that is new here, or was away for long, is
// far from all.
static bool is_odd(const struct gate_member *member) {
    uint64_t own = self()->virtual_ns;
    if (!is_far(member->virtual_ns, own)) return false;
    FOR_PRESENT(index)
        if (is_peer(index) && !is_far(gate.card->member[index].virtual_ns, own)) return true;
    return false;
}

// Level with whoever has had most: what was used while others were idle is no debt, and idleness no claim.
static void join(void) {
    uint64_t most = self()->virtual_ns;
    FOR_PRESENT(index) {
        const struct gate_member *member = &gate.card->member[index];
        if (is_peer(index) && is_before(most, member->virtual_ns) && !is_odd(member)) most = member->virtual_ns;
    }
    self()->virtual_ns = most;
}

// The virtual time of all that want the card together; false when nobody does.
static bool find_middle(uint64_t now, uint64_t *middle) {
    uint64_t from = self()->virtual_ns;
    int64_t distances = 0, weights = 0;
    FOR_PRESENT(index) {
        const struct gate_member *member = &gate.card->member[index];
        int64_t weight = (int64_t)weight_of(member);
        if (!is_active_peer(index, now) || is_far(member->virtual_ns, from)) continue;
        distances += (int64_t)(member->virtual_ns - from) * weight;
        weights += weight;
    }
    if (weights) *middle = from + (uint64_t)(distances / weights);
    return weights;
}

// A slice that comes back while others want the card has had neither more than they nor less.
static void come_back(uint64_t now) {
    uint64_t middle;
    if (find_middle(now, &middle)) self()->virtual_ns = middle;
    else join();
}

// What a slice did not use while others did is saved up to an amount: it is never further behind than that.
static void save_at_most(uint64_t saved_ns, uint64_t least_of_others) {
    uint64_t earliest = least_of_others - weighted(saved_ns);
    if (is_before(self()->virtual_ns, earliest)) self()->virtual_ns = earliest;
}

// As far as others were there to use the card.
static void forgo_saved(uint64_t saved_ns, uint64_t now) {
    const struct gate_member *least = NULL;
    FOR_PRESENT(index) {
        const struct gate_member *member = &gate.card->member[index];
        if (!is_active_peer(index, now) || is_odd(member)) continue;
        if (!least || is_before(member->virtual_ns, least->virtual_ns)) least = member;
    }
    if (least) save_at_most(saved_ns, least->virtual_ns);
}

void turn_active(uint64_t now, uint64_t outstanding_ns) {
    struct gate_member *member = self();
    uint64_t until = member->active_until_ns;
    member->guarantee_milli = gate.control->guarantee_milli;
    if (until < now) {
        come_back(now);
        demand_resume();
        measure_return();
    } else if (until < now + ACTIVE_NS - REST_NS && !is_waiting(member, now)) {
        forgo_saved(QUANTUM_NS, now);  // it rested a little
    }
    uint64_t work = outstanding_ns < LONGEST_WORK_NS ? outstanding_ns : LONGEST_WORK_NS;
    member->active_until_ns = now + ACTIVE_NS + work;
    member->active_ns = now;
    member->returns_ns = 0;
}

// With nothing on the card, and kept off it by its own limit for so long: until then lower classes may have it. Peers go
// on reckoning with it.
void turn_away(uint64_t now, uint64_t for_ns) {
    struct gate_member *member = self();
    member->active_until_ns = now + ACTIVE_NS;
    member->returns_ns = now + (for_ns < LONGEST_AWAY_NS ? for_ns : LONGEST_AWAY_NS);
}

// A peer that has more work on the card than belongs in a turn, and does not ask for one (`is_overfull`).
static bool is_draining(unsigned index, uint64_t now) {
    const struct gate_member *member = &gate.card->member[index];
    uint64_t until = member->active_until_ns, since = member->active_ns;
    return is_active_peer(index, now) && !is_waiting(member, now) && !member->returns_ns && until > since &&
           until - since > ACTIVE_NS + QUANTUM_NS;
}

static bool has_draining(uint64_t now) {
    FOR_PRESENT(index)
        if (is_draining(index, now)) return true;
    return false;
}

// Whether nobody goes beside the slice that has the turn.
static bool is_exclusive(const struct gate_member *member, uint64_t now) {
    return demand_of(member, now) > WHOLE_CARD - LEAST_ROOM_MILLI;
}

// The peer that waits and has had least; GATE_MEMBERS when none waits.
static unsigned next_peer(uint64_t now) {
    unsigned best = GATE_MEMBERS;
    FOR_PRESENT(index) {
        const struct gate_member *member = &gate.card->member[index];
        if (!is_peer(index) || !is_waiting(member, now)) continue;
        if (best == GATE_MEMBERS || is_before(member->virtual_ns, gate.card->member[best].virtual_ns)) best = index;
    }
    return best;
}

// Whoever has all that it can use, and saves nothing. A turn of others may be longer than one by what they had on the card
// before it. While nobody waits, it keeps to the middle: were it to be level with the foremost, several of this kind would
// drive each other on, and who takes all the rest of the card would fall behind, to have it alone later.
static void keep_up(uint64_t now) {
    unsigned peer = next_peer(now);
    uint64_t middle;
    if (peer != GATE_MEMBERS) save_at_most(2 * QUANTUM_NS, gate.card->member[peer].virtual_ns);
    else if (find_middle(now, &middle) && is_before(self()->virtual_ns, middle)) self()->virtual_ns = middle;
}

void turn_charge(uint64_t busy_ns, uint64_t now) {
    self()->virtual_ns += weighted(busy_ns);
    if (room_milli) budget_charge_fill(busy_ns, now, room_milli);
    bool contended = turn_contended(now);
    if (modest || !turn_crowded(now)) demand_question(now);
    bool shares = beside || (held_since_ns && !is_exclusive(self(), now));
    if (!contended) join();
    else if (shares && (!room_milli || modest)) keep_up(now);
    else forgo_saved(LONGEST_DEBT_NS, now);
}

static bool goes_before(unsigned peer, uint64_t outstanding_ns) {
    return peer == GATE_MEMBERS || !is_before(gate.card->member[peer].virtual_ns, self()->virtual_ns + weighted(outstanding_ns));
}

static bool hand_over(uint32_t from, uint32_t to) {
    struct gate_turn *turn = own_turn();
    if (!atomic_compare_exchange_strong(&turn->holder, &from, to)) return false;
    turn->until_ns = 0;
    gate_wake(&turn->holder, true);
    return true;
}

void turn_forget(void) {
    plain_until_ns = waiting_since_ns = 0;
    held_since_ns = 0;
}

static void go_by_turns(void) {
    room_milli = 0;
    beside = false;
    modest = false;
}

// Where nobody is in anybody's way, what the slice uses is what it would use by itself.
void turn_unneeded(uint64_t now) {
    self()->waiting_ns = waiting_since_ns = 0;
    go_by_turns();
    if (turn_crowded(now)) demand_drop();
    else demand_begin(now), demand_look(now, false);
}

bool turn_shared(uint64_t now) {
    bool alone = held_since_ns && is_exclusive(self(), now);
    FOR_PRESENT(index)
        if (is_active_peer(index, now) && !(alone && !is_draining(index, now) && !is_modest(&gate.card->member[index], now)))
            return true;
    return false;
}

unsigned turn_others(uint64_t now) {
    unsigned others = 0;
    FOR_PRESENT(index) others += is_active_peer(index, now);
    return others;
}

bool turn_settles(uint64_t now) { return held_since_ns && now < held_since_ns + SETTLING_NS; }

bool turn_held(void) { return own_turn()->holder == gate.member + 1; }

static uint32_t next_holder(uint64_t now) {
    unsigned peer = next_peer(now);
    return peer == GATE_MEMBERS ? 0 : peer + 1;
}

void turn_release(uint64_t now) {
    self()->waiting_ns = 0;
    demand_drop();
    if (!turn_held()) return;
    held_since_ns = 0;
    hand_over(gate.member + 1, next_holder(now));
}

// It lasts from when one of the slice's processes notices it, not from when it was handed over.
static void begin_turn(uint64_t now) {
    uint64_t none = 0;
    atomic_compare_exchange_strong(&own_turn()->until_ns, &none, now + QUANTUM_NS);
    if (held_since_ns) return;
    demand_begin(now);
    held_since_ns = now;
}

// What a slice wants is not seen while what a peer had queued drains, and from its end on again: else what is seen in a turn
// begins with it. Nor while it is in doubt what launches take; the next turn may be far off then.
static void look_beside_draining(uint64_t now) {
    static bool dropped;
    if (has_draining(now)) {
        demand_drop();
        dropped = true;
        return;
    }
    if (dropped || !demand_is_doubted(now)) demand_begin(now);
    dropped = false;
    demand_look(now, !is_exclusive(self(), now));
}

// The turn is ours: as much as ends within it, and one launch at least.
static enum admission admit_in_turn(uint64_t now, const struct work *work) {
    struct gate_turn *turn = own_turn();
    self()->waiting_ns = waiting_since_ns = 0;
    begin_turn(now);
    uint64_t until = turn->until_ns;
    if (until > now + QUANTUM_NS) until = now + QUANTUM_NS;
    if (now < until && (!work->outstanding_ns || now + work->left_ns + work->expected_ns <= until)) return ADMITTED;
    unsigned peer = next_peer(now);
    if (goes_before(peer, work->outstanding_ns)) {
        if (work->outstanding_ns >= QUANTUM_NS) return AWAIT_WORK;
        turn->until_ns = now + QUANTUM_NS;
        look_beside_draining(now);
        return ADMITTED;
    }
    if (budget_outstanding(now) > work->outstanding_ns || work->left_ns > OVERLAP_NS) return AWAIT_WORK;
    if (has_draining(now)) demand_drop();
    demand_end(now, !is_exclusive(self(), now));
    held_since_ns = 0;
    hand_over(gate.member + 1, peer + 1);
    self()->waiting_ns = now;
    return AWAIT_TURN;
}

// More is in flight than was to be let by, as launches turned out to take longer. While that drains, which takes others'
// time as well, nobody is made to wait for the end of it.
static bool is_overfull(const struct work *work) { return work->left_ns > QUANTUM_NS + work->expected_ns; }

// What those who go before leave of the card: the holder of the turn, and whose time is less.
static uint32_t room_beside(unsigned holder, uint64_t now) {
    uint32_t taken = demand_of(&gate.card->member[holder], now);
    FOR_PRESENT(index)
        if (index != holder && is_active_peer(index, now) && is_before(gate.card->member[index].virtual_ns, self()->virtual_ns))
            taken += demand_of(&gate.card->member[index], now);
    return taken < WHOLE_CARD ? WHOLE_CARD - taken : 0;
}

// Beside the holder of the turn, as far as there is room; what needs more than that, little by little.
static enum admission admit_beside(unsigned holder, uint64_t now, const struct work *work) {
    uint32_t room = demand_is_known(now) ? room_beside(holder, now) : 0;
    if (room < LEAST_ROOM_MILLI) return AWAIT_TURN;
    self()->waiting_ns = waiting_since_ns = 0;
    beside = true;
    if (demand_of(self(), now) <= room + NEARLY_MILLI) return ADMITTED;
    self()->waiting_ns = now;
    room_milli = room;
    if (budget_fill_wait(now, work->outstanding_ns, room_milli)) return AWAIT_ROOM;
    return work->outstanding_ns && work->outstanding_ns + work->expected_ns > BESIDE_NS ? AWAIT_WORK : ADMITTED;
}

// Who would use no more than its share is not made to wait for others' turns: it could not make up for it. As long as it
// keeps to its share.
static bool admits_modest(uint64_t now, const struct work *work) {
    uint32_t share = share_of(self(), now);  // found once: what others write meanwhile makes it another, or nothing
    if (!keeps_to(self(), share, now) || demand_is_hindered()) return false;
    if (budget_fill_wait(now, work->outstanding_ns, share)) return false;
    if (turn_held()) hand_over(gate.member + 1, next_holder(now));
    self()->waiting_ns = waiting_since_ns = 0;
    held_since_ns = 0;
    room_milli = share;
    beside = true;
    modest = true;
    demand_begin(now);
    demand_look(now, true);
    return true;
}

// Turns that do not come round, whatever the reason: on without them, and no longer fair than the driver is.
static bool gives_up(uint64_t now) {
    if (!waiting_since_ns) waiting_since_ns = now;
    if (now - waiting_since_ns < LONGEST_WORK_NS + 2 * weighted(QUANTUM_NS)) return false;
    waiting_since_ns = 0;
    plain_until_ns = now + PLAIN_NS;
    gate.slot->turn_timeouts++;
    return true;
}

enum admission turn_admits(uint64_t now, const struct work *work) {
    struct gate_turn *turn = own_turn();
    uint32_t holder = turn->holder, me = gate.member + 1;
    if (admits_modest(now, work)) return ADMITTED;
    go_by_turns();
    if (is_overfull(work)) {
        turn_release(now);
        return AWAIT_WORK;
    }
    if (holder == me) return admit_in_turn(now, work);
    held_since_ns = 0;
    demand_drop();
    bool known = holder && holder <= GATE_MEMBERS && is_peer(holder - 1);
    const struct gate_member *has = known ? &gate.card->member[holder - 1] : NULL;
    bool lives = known && is_believable(has, now) && has->active_until_ns + STALE_NS > now;
    enum admission answer = lives ? admit_beside(holder - 1, now, work) : AWAIT_TURN;
    if (answer != AWAIT_TURN) return answer;
    if (gives_up(now)) return ADMITTED;
    self()->waiting_ns = now;
    if (lives) return AWAIT_TURN;
    // Nobody has it, or nobody alive.
    unsigned peer = next_peer(now);
    uint32_t next = goes_before(peer, work->outstanding_ns) ? me : peer + 1;
    if (known) gate.slot->turn_timeouts++;
    hand_over(holder, next);
    return turn_held() ? admit_in_turn(now, work) : AWAIT_TURN;
}

uint64_t turn_overlap_in(uint64_t left_ns) { return left_ns > OVERLAP_NS ? left_ns - OVERLAP_NS : 0; }

void turn_await(uint64_t longest_ns) {
    struct gate_turn *turn = own_turn();
    uint32_t holder = turn->holder;
    if (holder != gate.member + 1) gate_wait(&turn->holder, holder, longest_ns, true);
}

static bool is_superior(unsigned index) {
    uint32_t present = gate.card->member[index].present;
    return present && present <= own_class();
}

bool turn_has_superiors(void) {
    FOR_PRESENT(index)
        if (is_superior(index)) return true;
    return false;
}

bool turn_awaited_below(uint64_t now) {
    FOR_PRESENT(index) {
        const struct gate_member *member = &gate.card->member[index];
        if (member->present > own_class() + 1 && is_active(member, now)) return true;
    }
    return false;
}

bool turn_superiors_about(uint64_t now) {
    FOR_PRESENT(index) {
        uint64_t active = gate.card->member[index].active_ns;
        if (is_superior(index) && active && active <= now + ABOUT_NS && active + ABOUT_NS > now) return true;
    }
    return false;
}

// One that is away counts as active again from its return on, though it takes a moment to wake.
uint64_t turn_gap(uint64_t now) {
    uint64_t gap = UINT64_MAX;
    FOR_PRESENT(index) {
        if (!is_superior(index)) continue;
        const struct gate_member *member = &gate.card->member[index];
        uint64_t active = member->active_ns, returns = member->returns_ns;
        if (returns > now && returns - now <= 2 * LONGEST_AWAY_NS) {
            if (returns - now < gap) gap = returns - now;
            continue;
        }
        if ((active <= now && now - active < WINDOW_NS) || (returns <= now && now - returns < WINDOW_NS)) return 0;
    }
    return gap;
}
