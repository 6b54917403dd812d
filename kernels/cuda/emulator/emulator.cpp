// The scheduler of fibers, the table of kernels and the C interface of the emulator.
#include "emulator.h"

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <vector>

#if defined(LIFELONG_TSAN)
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned);
void __tsan_destroy_fiber(void*);
void __tsan_switch_to_fiber(void*, unsigned);
void __tsan_acquire(void*);
void __tsan_release(void*);
}
#endif
#if defined(LIFELONG_ASAN)
extern "C" {
void __sanitizer_start_switch_fiber(void**, const void*, size_t);
void __sanitizer_finish_switch_fiber(void*, const void**, size_t*);
}
#endif

#if defined(__x86_64__)
// Puts the registers that a call keeps on this stack, and takes those of another stack.
extern "C" void lifelong_switch_stack(void** from, void* to);
asm(R"(
.text
.globl lifelong_switch_stack
.hidden lifelong_switch_stack
.type lifelong_switch_stack, @function
lifelong_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size lifelong_switch_stack, .-lifelong_switch_stack
.section .note.GNU-stack,"",@progbits
.text
)");
#else
#include <ucontext.h>
#endif

namespace emulate {

Thread* current;
dim3 grid, block;
uint3 block_index;

namespace {

constexpr size_t STACK_BYTES = 128 * 1024;
constexpr size_t PAGE = 4096;
constexpr size_t GUARD = 256;
constexpr unsigned char POISON = 0xff;
constexpr unsigned char FENCE = 0xa5;
constexpr unsigned MOST_THREADS = 1024;
// What a block may have on every GPU that we compile for.
constexpr size_t MOST_SHARED_BYTES = 99 * 1024;

enum class State : uint8_t { Ready, AtBarrier, Meeting, Done };

struct Copy {
    void* to;
    const void* from;
    size_t bytes;
    int group;
    Place place;
};

struct Fiber : Thread {
    unsigned char* stack = nullptr;
    State state = State::Done;
    Place place{"", 0};
    // Of a meeting.
    unsigned mask = 0;
    const char* what = "";
    void* operand = nullptr;
    // Of copies.
    std::vector<Copy> copies;
    int group = 0;
#if defined(__x86_64__)
    void* saved = nullptr;
#else
    ucontext_t context;
#endif
    void* fake = nullptr;
    void* tsan = nullptr;
};

struct Kernel {
    void (*function)();
    Invoke invoke;
};

// A piece of the block's shared memory between two fences.
struct Piece {
    Place place;
    size_t bytes;
    std::vector<unsigned char> memory;
    unsigned char* start() {
        auto address = reinterpret_cast<uintptr_t>(memory.data()) + GUARD;
        return reinterpret_cast<unsigned char*>((address + 127) / 128 * 128);
    }
    void fill() {
        memory.assign(bytes + 2 * GUARD + 128, FENCE);
        memset(start(), POISON, bytes);
    }
    bool is_intact() {
        const unsigned char *first = start(), *end = first + bytes;
        for (size_t i = 1; i <= GUARD; i++)
            if (first[-ptrdiff_t(i)] != FENCE || end[i - 1] != FENCE) return false;
        return true;
    }
};

struct Machine {
    std::vector<Fiber> fibers;
    Fiber* running = nullptr;
    const Kernel* kernel = nullptr;
    void** arguments = nullptr;
    std::vector<Piece> pieces;
    size_t dynamic_bytes = 0;
    std::string failure;
    uint64_t seed = 0;
    uint64_t random = 0;
    size_t done = 0;
#if defined(__x86_64__)
    void* saved = nullptr;
#else
    ucontext_t context;
#endif
    void* fake = nullptr;
    const void* bottom = nullptr;
    size_t stack_bytes = 0;
    void* tsan = nullptr;
    // What thread sanitizer orders memory by: the start of a block, its barriers, and those of its warps.
    char order_start = 0, order_barrier = 0, order_warp[MOST_THREADS / 32] = {};
};

Machine& machine() {
    static Machine the_machine;
    return the_machine;
}

std::mutex& lock() {
    static std::mutex the_lock;
    return the_lock;
}

std::map<std::string, Kernel>& table() {
    static std::map<std::string, Kernel> the_table;
    return the_table;
}

void order_release(char* by) {
#if defined(LIFELONG_TSAN)
    __tsan_release(by);
#else
    (void)by;
#endif
}

void order_acquire(char* by) {
#if defined(LIFELONG_TSAN)
    __tsan_acquire(by);
#else
    (void)by;
#endif
}

// From the running fiber to the scheduler.
void leave() {
    Machine& m = machine();
    Fiber* me = m.running;
#if defined(LIFELONG_TSAN)
    __tsan_switch_to_fiber(m.tsan, 1);
#endif
#if defined(LIFELONG_ASAN)
    __sanitizer_start_switch_fiber(me->state == State::Done ? nullptr : &me->fake, m.bottom, m.stack_bytes);
#endif
#if defined(__x86_64__)
    lifelong_switch_stack(&me->saved, m.saved);
#else
    swapcontext(&me->context, &m.context);
#endif
#if defined(LIFELONG_ASAN)
    __sanitizer_finish_switch_fiber(me->fake, &m.bottom, &m.stack_bytes);
#endif
}

void enter(Fiber& fiber) {
    Machine& m = machine();
    m.running = &fiber;
    current = &fiber;
#if defined(LIFELONG_TSAN)
    __tsan_switch_to_fiber(fiber.tsan, 1);
#endif
#if defined(LIFELONG_ASAN)
    __sanitizer_start_switch_fiber(&m.fake, fiber.stack, STACK_BYTES);
#endif
#if defined(__x86_64__)
    lifelong_switch_stack(&m.saved, fiber.saved);
#else
    swapcontext(&m.context, &fiber.context);
#endif
#if defined(LIFELONG_ASAN)
    __sanitizer_finish_switch_fiber(m.fake, nullptr, nullptr);
#endif
    m.running = nullptr;
}

void run_thread() {
    Machine& m = machine();
#if defined(LIFELONG_ASAN)
    __sanitizer_finish_switch_fiber(nullptr, &m.bottom, &m.stack_bytes);
#endif
    order_acquire(&m.order_start);
    try {
        m.kernel->invoke(m.kernel->function, m.arguments);
        if (!m.running->copies.empty() && m.failure.empty()) {
            m.failure = "a thread ended without waiting for the copy it began at " + name_of(m.running->copies[0].place);
        }
    } catch (const std::exception& failure) {
        if (m.failure.empty()) m.failure = failure.what();
    }
    m.running->state = State::Done;
    m.done++;
    leave();
    abort();
}

void prepare(Fiber& fiber) {
    fiber.state = State::Ready;
    fiber.copies.clear();
    fiber.group = 0;
#if defined(__x86_64__)
    auto top = reinterpret_cast<void**>(fiber.stack + STACK_BYTES);
    // As after a call: 8 bytes behind a border of 16.
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(&run_thread);
    for (int i = 0; i < 6; i++) *--top = nullptr;
    fiber.saved = top;
#else
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = STACK_BYTES;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, &run_thread, 0);
#endif
#if defined(LIFELONG_TSAN)
    fiber.tsan = __tsan_create_fiber(0);
#endif
}

void forget(Fiber& fiber) {
#if defined(LIFELONG_TSAN)
    __tsan_destroy_fiber(fiber.tsan);
#else
    (void)fiber;
#endif
}

uint64_t next_random() {
    uint64_t& x = machine().random;
    x += 0x9E3779B97F4A7C15ull;
    uint64_t bits = x;
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9ull;
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EBull;
    return bits ^ bits >> 31;
}

std::string coordinates(uint3 at) {
    return "(" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " + std::to_string(at.z) + ")";
}

// All threads that are left wait at a barrier: lets them go on.
void open_barrier(Machine& m) {
    Place place{"", 0};
    size_t waiting = 0;
    for (const Fiber& fiber : m.fibers) {
        if (fiber.state != State::AtBarrier) continue;
        if (waiting++ == 0) place = fiber.place;
        if (!(fiber.place == place)) {
            throw Failure("a barrier in divergent code: some threads are at " + name_of(place) + ", others at " +
                          name_of(fiber.place));
        }
    }
    if (m.done > 0) {
        throw Failure("a barrier in divergent code: " + std::to_string(waiting) + " threads reach " + name_of(place) +
                      ", " + std::to_string(m.done) + " have exited");
    }
    for (Fiber& fiber : m.fibers) fiber.state = State::Ready;
}

[[noreturn]] void fail_deadlocked(const Machine& m) {
    for (const Fiber& fiber : m.fibers) {
        for (unsigned lane = 0; fiber.state == State::Meeting && lane < 32; lane++) {
            if (!(fiber.mask >> lane & 1) || m.fibers[fiber.warp * 32 + lane].state != State::Done) continue;
            throw Failure(std::string(fiber.what) + " at " + name_of(fiber.place) + " names lane " + std::to_string(lane) +
                          ", which has exited");
        }
    }
    std::string text = "no thread can go on:";
    int named = 0;
    for (const Fiber& fiber : m.fibers) {
        if (fiber.state == State::Done || named++ == 6) continue;
        const char* what = fiber.state == State::AtBarrier ? "a barrier" : fiber.what;
        text += " thread " + std::to_string(fiber.linear) + " waits at " + what + ", " + name_of(fiber.place) + ";";
        if (named == 6) break;
    }
    throw Failure(text);
}

void run_block(Machine& m) {
    const size_t count = m.fibers.size();
    for (Piece& piece : m.pieces) piece.fill();
    for (Fiber& fiber : m.fibers) prepare(fiber);
    m.done = 0;
    std::vector<unsigned> order(count);
    for (size_t i = 0; i < count; i++) order[i] = unsigned(i);
#if defined(LIFELONG_TSAN)
    m.tsan = __tsan_get_current_fiber();
#endif
    order_release(&m.order_start);
    while (m.done < count) {
        if (m.seed != 0) {
            for (size_t i = count; i > 1; i--) std::swap(order[i - 1], order[next_random() % i]);
        }
        bool has_run = false;
        for (unsigned index : order) {
            if (m.fibers[index].state != State::Ready) continue;
            enter(m.fibers[index]);
            has_run = true;
            if (!m.failure.empty()) throw Failure(m.failure);
        }
        if (has_run || m.done == count) continue;
        for (const Fiber& fiber : m.fibers) {
            if (fiber.state == State::Meeting) fail_deadlocked(m);
        }
        open_barrier(m);
    }
    for (Fiber& fiber : m.fibers) forget(fiber);
    for (Piece& piece : m.pieces) {
        if (!piece.is_intact()) {
            throw Failure("a write outside of the " + std::to_string(piece.bytes) + " bytes of shared memory " +
                          (piece.place.line ? "declared at " + name_of(piece.place) : "given to the launch"));
        }
    }
}

void make_fibers(Machine& m, dim3 extents) {
    const size_t count = size_t(extents.x) * extents.y * extents.z;
    static std::vector<unsigned char*> stacks;
    while (stacks.size() < count) {
        void* memory = mmap(nullptr, STACK_BYTES + PAGE, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) throw Failure("no memory for the stacks of " + std::to_string(count) + " threads");
        // The lowest page is a fence.
        mprotect(memory, PAGE, PROT_NONE);
        stacks.push_back(static_cast<unsigned char*>(memory) + PAGE);
    }
    m.fibers.resize(count);
    for (unsigned i = 0; i < count; i++) {
        Fiber& fiber = m.fibers[i];
        fiber.stack = stacks[i];
        fiber.linear = i;
        fiber.lane = i % 32;
        fiber.warp = i / 32;
        fiber.index = uint3{i % extents.x, i / extents.x % extents.y, i / extents.x / extents.y};
    }
}

void check_launch(dim3 g, dim3 b, size_t shared_bytes) {
    const uint64_t threads = uint64_t(b.x) * b.y * b.z;
    if (threads == 0 || threads > MOST_THREADS || b.x > 1024 || b.y > 1024 || b.z > 64) {
        throw Failure("a block of " + coordinates({b.x, b.y, b.z}) + " threads; 1 to 1024 in all and 64 along z are possible");
    }
    if (threads % 32 != 0) throw Failure("a block of " + std::to_string(threads) + " threads is no whole number of warps");
    if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > 2147483647u || g.y > 65535 || g.z > 65535) {
        throw Failure("a grid of " + coordinates({g.x, g.y, g.z}) + " blocks; 1 to 2147483647, 65535 and 65535 are possible");
    }
    if (shared_bytes > MOST_SHARED_BYTES) {
        throw Failure(std::to_string(shared_bytes) + " bytes of shared memory for a block, " +
                      std::to_string(MOST_SHARED_BYTES) + " are possible");
    }
}

void launch(const Kernel& kernel, dim3 g, dim3 b, size_t shared_bytes, void** arguments) {
    check_launch(g, b, shared_bytes);
    Machine& m = machine();
    make_fibers(m, b);
    m.kernel = &kernel;
    m.arguments = arguments;
    m.failure.clear();
    m.pieces.clear();
    m.pieces.reserve(64);
    m.dynamic_bytes = shared_bytes;
    if (shared_bytes > 0) m.pieces.push_back({{"", 0}, shared_bytes, {}});
    m.random = m.seed;
    grid = g;
    block = b;
    const uint64_t blocks = uint64_t(g.x) * g.y * g.z;
    // A stride that is prime to the number of blocks visits each once.
    uint64_t stride = 1, at = 0;
    if (m.seed != 0 && blocks > 2) {
        at = next_random() % blocks;
        do stride = 1 + next_random() % (blocks - 1);
        while (std::__gcd(stride, blocks) != 1);
    }
    for (uint64_t i = 0; i < blocks; i++, at = (at + stride) % blocks) {
        block_index = uint3{unsigned(at % g.x), unsigned(at / g.x % g.y), unsigned(at / g.x / g.y)};
        try {
            run_block(m);
        } catch (const Failure& failure) {
            std::string where = "block " + coordinates(block_index);
            throw Failure(where + ": " + failure.what());
        }
    }
}

// A library of changed kernels that stands before this one, for tests of the tests.
struct Overlay {
    void* library = nullptr;
    int (*launch)(const char*, const unsigned*, const unsigned*, size_t, void**, char*, size_t) = nullptr;
    void (*set_order)(uint64_t) = nullptr;
    int (*knows)(const char*) = nullptr;
};
Overlay overlay;

}  // namespace

std::string name_of(Place place) {
    const char* slash = strrchr(place.file, '/');
    return std::string(slash ? slash + 1 : place.file) + ":" + std::to_string(place.line);
}

void barrier(Place place) {
    Machine& m = machine();
    m.running->state = State::AtBarrier;
    m.running->place = place;
    order_release(&m.order_barrier);
    leave();
    order_acquire(&m.order_barrier);
}

void meet(unsigned mask, const char* what, Place place, Act act, void* operand) {
    Machine& m = machine();
    Fiber* me = m.running;
    if (!(mask >> me->lane & 1)) {
        throw Failure(std::string(what) + " at " + name_of(place) + " whose mask leaves out lane " +
                      std::to_string(me->lane) + ", which calls it");
    }
    me->mask = mask;
    me->what = what;
    me->place = place;
    me->operand = operand;
    const bool orders_memory = operand == nullptr;
    if (orders_memory) order_release(&m.order_warp[me->warp]);
    Fiber* warp = &m.fibers[me->warp * 32];
    void* operands[32] = {};
    bool is_last = true;
    for (unsigned lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        Fiber& other = warp[lane];
        operands[lane] = other.operand;
        if (&other == me) continue;
        if (other.state == State::Done) {
            throw Failure(std::string(what) + " at " + name_of(place) + " names lane " + std::to_string(lane) +
                          ", which has exited");
        }
        if (other.state != State::Meeting) {
            is_last = false;
        } else if (!(other.place == place) || other.mask != mask) {
            throw Failure("lanes of one warp meet at different places: " + std::string(what) + " at " + name_of(place) +
                          " and " + other.what + " at " + name_of(other.place));
        }
    }
    if (is_last) {
        act(mask, operands);
        for (unsigned lane = 0; lane < 32; lane++) {
            if (mask >> lane & 1) warp[lane].state = State::Ready;
        }
    } else {
        me->state = State::Meeting;
        leave();
    }
    if (orders_memory) order_acquire(&m.order_warp[me->warp]);
}

void* shared(Place place, size_t bytes) {
    Machine& m = machine();
    size_t total = m.dynamic_bytes;
    for (Piece& piece : m.pieces) {
        if (piece.place.line == place.line && piece.bytes == bytes && !strcmp(piece.place.file, place.file)) {
            return piece.start();
        }
        if (piece.place.line) total += piece.bytes;
    }
    if (total + bytes > MOST_SHARED_BYTES) {
        throw Failure(std::to_string(total + bytes) + " bytes of shared memory for a block at " + name_of(place) + ", " +
                      std::to_string(MOST_SHARED_BYTES) + " are possible");
    }
    if (m.pieces.size() == m.pieces.capacity()) throw Failure("more than 64 arrays of shared memory");
    m.pieces.push_back({place, bytes, {}});
    m.pieces.back().fill();
    return m.pieces.back().start();
}

void* dynamic_shared(Place place) {
    Machine& m = machine();
    if (m.dynamic_bytes == 0) throw Failure("the launch gave no shared memory to the array at " + name_of(place));
    return m.pieces[0].start();
}

void check_aligned(const void* address, size_t bytes, const char* what, Place place) {
    if (reinterpret_cast<uintptr_t>(address) % bytes != 0) {
        throw Failure(std::string(what) + " of " + std::to_string(bytes) + " bytes at " + name_of(place) +
                      " from an address that is no multiple of it");
    }
}

void copy_later(void* to, const void* from, size_t bytes, Place place) {
    check_aligned(to, bytes, "an asynchronous copy", place);
    check_aligned(from, bytes, "an asynchronous copy", place);
    Fiber* me = machine().running;
    memset(to, POISON, bytes);
    me->copies.push_back({to, from, bytes, me->group, place});
}

void commit_copies() { machine().running->group++; }

void wait_for_copies(int groups_left) {
    Fiber* me = machine().running;
    std::erase_if(me->copies, [&](const Copy& copy) {
        if (copy.group >= me->group - groups_left) return false;
        memcpy(copy.to, copy.from, copy.bytes);
        return true;
    });
}

void shuffle(unsigned mask, void* const* operands) {
    for (int lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        auto& own = *static_cast<ShuffleOperand*>(operands[lane]);
        const int first = lane & ~(own.width - 1), place = lane & (own.width - 1);
        int source = lane;
        switch (own.kind) {
            case Shuffle::From: source = first + (own.by & (own.width - 1)); break;
            case Shuffle::Up: source = place < own.by ? lane : lane - own.by; break;
            case Shuffle::Down: source = place + own.by >= own.width ? lane : lane + own.by; break;
            case Shuffle::Across: source = (place ^ own.by) >= own.width ? lane : first + (place ^ own.by); break;
        }
        if (!(mask >> source & 1)) {
            throw Failure("a shuffle at " + name_of(own.place) + " reads lane " + std::to_string(source) +
                          ", which its mask leaves out");
        }
        own.result = static_cast<ShuffleOperand*>(operands[source])->value;
    }
}

void ballot(unsigned mask, void* const* operands) {
    unsigned votes = 0;
    for (int lane = 0; lane < 32; lane++) {
        if (mask >> lane & 1) votes |= unsigned(static_cast<VoteOperand*>(operands[lane])->vote) << lane;
    }
    for (int lane = 0; lane < 32; lane++) {
        if (mask >> lane & 1) static_cast<VoteOperand*>(operands[lane])->result = votes;
    }
}

unsigned ballot(unsigned mask, bool vote, Place place) {
    VoteOperand operand{vote, 0};
    meet(mask, "a vote", place, &ballot, &operand);
    return operand.result;
}

namespace {

float number(uint16_t bits, Numbers numbers) {
    if (numbers == Numbers::Brain) return emulated_bits<float>(uint32_t(bits) << 16);
    __half_raw raw;
    raw.x = bits;
    return __half2float(__half(raw));
}

void check_all(unsigned mask) {
    if (mask != 0xffffffffu) throw Failure("a matrix product by some lanes of a warp only");
}

}  // namespace

void multiply_floats(unsigned mask, void* const* operands) {
    check_all(mask);
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; lane++) {
        const auto& operand = *static_cast<FloatProduct*>(operands[lane]);
        const int row = lane / 4, pair = lane % 4 * 2;
        for (int part = 0; part < 4; part++) {
            for (int i = 0; i < 2; i++) {
                a[row + part % 2 * 8][pair + part / 2 * 8 + i] = number(uint16_t(operand.a[part] >> 16 * i), operand.numbers);
            }
        }
        for (int part = 0; part < 2; part++) {
            for (int i = 0; i < 2; i++) b[pair + part * 8 + i][row] = number(uint16_t(operand.b[part] >> 16 * i), operand.numbers);
        }
    }
    float sums[16][8] = {};
    for (int row = 0; row < 16; row++) {
        for (int k = 0; k < 16; k++) {
            for (int column = 0; column < 8; column++) sums[row][column] += a[row][k] * b[k][column];
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        float* own = static_cast<FloatProduct*>(operands[lane])->sums;
        for (int i = 0; i < 4; i++) own[i] += sums[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
    }
}

void multiply_integers(unsigned mask, void* const* operands) {
    check_all(mask);
    const int depth = static_cast<IntegerProduct*>(operands[0])->depth, words = depth / 16;
    int a[16][32], b[32][8];
    for (int lane = 0; lane < 32; lane++) {
        const auto& operand = *static_cast<IntegerProduct*>(operands[lane]);
        const int row = lane / 4, four = lane % 4 * 4;
        for (int word = 0; word < words; word++) {
            for (int i = 0; i < 4; i++) {
                a[row][four + word * 16 + i] = uint8_t(operand.a[word * 2] >> 8 * i);
                a[row + 8][four + word * 16 + i] = uint8_t(operand.a[word * 2 + 1] >> 8 * i);
                b[four + word * 16 + i][row] = int8_t(operand.b[word] >> 8 * i);
            }
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        int* own = static_cast<IntegerProduct*>(operands[lane])->sums;
        for (int i = 0; i < 4; i++) {
            const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            for (int k = 0; k < depth; k++) own[i] += a[row][k] * b[k][column];
        }
    }
}

Entry::Entry(const char* name, void (*kernel)(), Invoke invoke) { table()[name] = {kernel, invoke}; }

}  // namespace emulate

extern "C" {

// Runs a kernel to its end. 0, or 1 with what went wrong in `message`.
__attribute__((visibility("default"))) int emulate_launch(const char* kernel, const unsigned grid[3], const unsigned block[3], size_t shared_bytes,
                                                          void** arguments, char* message, size_t message_bytes) {
    using namespace emulate;
    if (overlay.library != nullptr && overlay.knows(kernel)) {
        return overlay.launch(kernel, grid, block, shared_bytes, arguments, message, message_bytes);
    }
    std::lock_guard<std::mutex> guard(lock());
    std::string problem;
    try {
        auto found = table().find(kernel);
        if (found == table().end()) throw Failure("there is no such kernel");
        launch(found->second, dim3(grid[0], grid[1], grid[2]), dim3(block[0], block[1], block[2]), shared_bytes, arguments);
        return 0;
    } catch (const std::exception& failure) {
        problem = std::string(kernel) + ": " + failure.what();
    }
    snprintf(message, message_bytes, "%s", problem.c_str());
    return 1;
}

// 0: threads and blocks run in order; else in a random one that the seed decides.
__attribute__((visibility("default"))) void emulate_thread_order(uint64_t seed) {
    std::lock_guard<std::mutex> guard(emulate::lock());
    emulate::machine().seed = seed;
    if (emulate::overlay.library != nullptr) emulate::overlay.set_order(seed);
}

__attribute__((visibility("default"))) int emulate_knows(const char* kernel) { return emulate::table().count(kernel) != 0; }

// Puts the kernels of another library of this kind before the own ones, or with none takes them away again. 0, or 1 with
// what went wrong in `message`.
__attribute__((visibility("default"))) int emulate_overlay(const char* path, char* message, size_t message_bytes) {
    using namespace emulate;
    std::lock_guard<std::mutex> guard(lock());
    if (overlay.library != nullptr) dlclose(overlay.library);
    overlay = {};
    if (path == nullptr) return 0;
    Overlay opened;
    opened.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (opened.library != nullptr) {
        opened.launch = reinterpret_cast<decltype(opened.launch)>(dlsym(opened.library, "emulate_launch"));
        opened.set_order = reinterpret_cast<decltype(opened.set_order)>(dlsym(opened.library, "emulate_thread_order"));
        opened.knows = reinterpret_cast<decltype(opened.knows)>(dlsym(opened.library, "emulate_knows"));
    }
    if (opened.launch == nullptr || opened.set_order == nullptr || opened.knows == nullptr) {
        const char* problem = dlerror();
        snprintf(message, message_bytes, "%s cannot stand before the kernels: %s", path, problem ? problem : "functions are missing");
        return 1;
    }
    opened.set_order(machine().seed);
    overlay = opened;
    return 0;
}

}  // extern "C"
