// The cache of decoded blocks: look-up by address and mode, building, and dropping when code changes.
#include <algorithm>

#include "machine/soft/forms.hpp"

namespace vpmu::soft {

namespace {

constexpr std::size_t bucket_count = 1 << 14;
constexpr std::size_t arena_chunk = 1 << 20;
/// Beyond this much decoded code all of it is dropped: a guest cannot fill the host's memory.
constexpr std::size_t max_chunks = 64;

std::size_t bucket_of(u64 physical, u64 rip, u32 mode) {
  u64 hash = (physical ^ (rip << 17) ^ mode) * 0x9e3779b97f4a7c15;
  return (hash >> 40) % bucket_count;
}

bool is_flat(const Segment& s) { return s.usable && s.base == 0 && s.limit == 0xffffffff && !s.expands_down(); }

}  // namespace

void Core::set_mode() {
  u32 bits = mode_bits::code64;
  if (!code64()) {
    const Segment& cs = segment(Seg::cs);
    bits = cs.is_big() ? mode_bits::code32 : mode_bits::code16;
    const bool flat = is_flat(cs) && is_flat(segment(Seg::ss)) && segment(Seg::ss).writable() &&
                      is_flat(segment(Seg::ds)) && segment(Seg::ds).writable() && is_flat(segment(Seg::es)) &&
                      segment(Seg::es).writable();
    if (!flat) bits |= mode_bits::segmented;
    if (!segment(Seg::ss).is_big()) bits |= mode_bits::small_stack;
  }
  bits |= static_cast<u32>(cpl) << mode_bits::cpl_shift;
  if (options.general_path_only) bits |= mode_bits::general_only;
  mode = bits;
  chain_key = (epoch << 8) | mode;
  update_tlb_choice();
}

void Core::new_epoch() {
  ++epoch;
  chain_key = (epoch << 8) | mode;
}

void* Core::allocate(std::size_t bytes) {
  bytes = (bytes + 63) & ~std::size_t{63};
  if (arena.empty() || arena_used + bytes > arena_chunk) {
    if (arena.size() >= max_chunks) return nullptr;
    arena.push_back(std::make_unique_for_overwrite<u8[]>(arena_chunk + 64));
    arena_used = 0;
  }
  void* place = arena.back().get() + arena_used;
  arena_used += bytes;
  return place;
}

void Core::drop_all_blocks() {
  for (const auto& [page, blocks] : blocks_of_page) {
    if (mem.contains(page)) mem.set_code_lines(page, 0);
  }
  blocks_of_page.clear();
  std::fill(buckets.begin(), buckets.end(), nullptr);
  if (arena.size() > 1) arena.resize(1);
  arena_used = 0;
  jumps.fill({});
  new_epoch();
}

bool Core::code_written(u64 physical, u64 length) {
  bool dropped = false;
  for (u64 page = physical & page_mask; page < physical + length; page += page_bytes) {
    const auto found = blocks_of_page.find(page);
    if (found == blocks_of_page.end()) continue;
    for (Block* each : found->second) {
      if (!each->valid) continue;
      each->valid = false;
      Block** link = &buckets[bucket_of(each->physical, each->rip, each->mode)];
      while (*link != nullptr && *link != each) link = &(*link)->hash_next;
      if (*link == each) *link = each->hash_next;
    }
    blocks_of_page.erase(found);
    if (mem.contains(page)) mem.set_code_lines(page, 0);
    dropped = true;
  }
  if (dropped) new_epoch();
  return dropped;
}

Block* Core::find_block() {
  JumpEntry& jump = jumps[jump_index(rip)];
  if (jump.rip == rip && jump.key == chain_key) return jump.block;
  u64 linear = rip;
  if (!code64()) {
    const Segment& cs = segment(Seg::cs);
    if (rip > cs.limit) raise_gp();
    linear = (cs.base + rip) & 0xffffffff;
  } else if (!is_canonical(rip)) {
    raise_gp();
  }
  const u64 physical = translate(linear, Access::exec, user());
  Block* found = nullptr;
  for (Block* b = buckets[bucket_of(physical, rip, mode)]; b != nullptr; b = b->hash_next) {
    if (b->physical != physical || b->rip != rip || b->mode != mode) continue;
    if (b->second_page != ~u64{0}) {
      const u64 next = (linear & page_mask) + page_bytes;
      if (translate(code64() ? next : next & 0xffffffff, Access::exec, user()) != b->second_page) continue;
    }
    found = b;
    break;
  }
  if (found == nullptr) found = decode_block(physical);
  jump = {rip, chain_key, found};
  return found;
}

Block* Core::decode_block(u64 physical) {
  std::array<Op, Block::max_instructions> ops;
  std::array<Insn, Block::max_instructions> insns;
  std::array<u8, 32> window{};
  const u64 page_end = (physical & page_mask) + page_bytes;
  const u64 linear = code64() ? rip : (segment(Seg::cs).base + rip) & 0xffffffff;
  u64 second_page = ~u64{0};
  u64 at = physical;
  u64 address = rip;
  unsigned count = 0;
  bool ends = false;
  while (count < Block::max_instructions && !ends && at < page_end) {
    const std::size_t here = std::min<u64>(15, page_end - at);
    mem.read(at, window.data(), here);
    if (decode(window.data(), here, address, mode, insns[count], ops[count], ends) == DecodeResult::needs_more) {
      // It straddles two pages: a block of its own, so that the next page's faults come in their place.
      if (count > 0) break;
      u64 next = (linear & page_mask) + page_bytes;
      if (!code64()) next &= 0xffffffff;
      if (code64() && !is_canonical(next)) raise_gp();
      second_page = translate(next, Access::exec, user());
      mem.read(second_page, window.data() + here, 15 - here);
      (void)decode(window.data(), 15, address, mode, insns[0], ops[0], ends);
      at += ops[0].length;
      count = 1;
      break;
    }
    at += ops[count].length;
    address = ops[count].next;
    ++count;
  }
  if (count >= 2) fuse(ops[count - 2], ops[count - 1]);

  std::size_t insn_count = 0;
  for (unsigned n = 0; n < count; ++n) {
    insn_count += ops[n].form == Form::general || ops[n].form == Form::general_end ? 1 : 0;
  }
  const std::size_t bytes = sizeof(Block) + (count + 1) * sizeof(Op) + insn_count * sizeof(Insn);
  void* place = allocate(bytes);
  if (place == nullptr) {
    drop_all_blocks();
    place = allocate(bytes);
  }
  auto* b = new (place) Block;
  b->ops = reinterpret_cast<Op*>(b + 1);
  auto* kept = reinterpret_cast<Insn*>(b->ops + count + 1);
  const void* const* table = dispatch(nullptr, nullptr);
  u64 cycles = 0;
  u64 branches = 0;
  for (unsigned n = 0; n < count; ++n) {
    Op& op_here = ops[n];
    if (op_here.form == Form::general || op_here.form == Form::general_end) {
      op_here.insn = new (kept++) Insn(insns[n]);
    } else {
      op_here.insn = nullptr;
    }
    op_here.go = table[static_cast<std::size_t>(op_here.form)];
    cycles += op_here.cycles;
    branches += op_here.branch ? 1 : 0;
    new (b->ops + n) Op(op_here);
  }
  Op last;
  last.form = last.plain = Form::fall;
  last.next = ops[count - 1].next;
  last.length = 0;
  last.cycles = 0;
  last.go = table[static_cast<std::size_t>(Form::fall)];
  new (b->ops + count) Op(last);
  b->weight = Weight::pack(count, cycles, branches);
  b->rip = rip;
  b->physical = physical;
  b->second_page = second_page;
  b->mode = mode;
  b->count = static_cast<u16>(count);
  b->bytes = static_cast<u16>(at - physical);

  Block*& bucket = buckets[bucket_of(physical, rip, mode)];
  b->hash_next = bucket;
  bucket = b;
  const auto cover = [&](u64 from, u64 length) {
    if (!mem.contains(from, length)) return;
    const u64 lines = mem.code_lines(from);
    if (lines == 0) purge_write_tlb(from & page_mask);
    mem.set_code_lines(from, lines | Memory::line_mask(from, length));
  };
  blocks_of_page[physical & page_mask].push_back(b);
  if (second_page == ~u64{0}) {
    cover(physical, b->bytes);
  } else {
    const u64 here = page_end - physical;
    // Decoding looked at all 15 bytes; what follows the instruction does not matter to it.
    cover(physical, here);
    if (b->bytes > here) cover(second_page, b->bytes - here);
    blocks_of_page[second_page & page_mask].push_back(b);
  }
  return b;
}

}  // namespace vpmu::soft
