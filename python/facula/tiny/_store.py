"""Trained parameters in flash memory: C that saves them in two slots, and loads the last complete one."""

from __future__ import annotations

import re

_HEADER = """/* Trained parameters in flash memory, in two slots of NAME_STORE_BYTES each. Saving erases and
   writes the older slot, its header last, so that after a loss of power at any time the former
   parameters load. */
#ifndef NAME_STORE_H
#define NAME_STORE_H

#include <stdint.h>

#define NAME_STORE_BYTES BYTESu

/* The program supplies these; they return 0, or 1 if they fail. Erased memory is 0xff. */
int NAME_flash_erase(int slot);
int NAME_flash_write(int slot, uint32_t offset, const void* data, uint32_t bytes);
int NAME_flash_read(int slot, uint32_t offset, void* data, uint32_t bytes);

/* Returns 0, or 1 if the flash memory failed; the slot that was saved before then remains. */
int NAME_save(void);
/* Loads the last complete slot. Returns 0, or 1 if there is none: the parameters then stay as they are. */
int NAME_load(void);

#endif
"""

_CODE = """#include "NAME_store.h"

#include "NAME.h"

struct part {
  void* data;
  uint32_t bytes;
};
static const struct part parts[] = {
PARTS};
#define PARTS (sizeof parts / sizeof *parts)

struct header {
  uint32_t magic, number, bytes, check;
};
#define MAGIC 0x31435446u

static uint32_t crc(uint32_t sum, const void* data, uint32_t bytes) {
  const unsigned char* p = (const unsigned char*)data;
  for (uint32_t i = 0; i < bytes; ++i) {
    sum ^= p[i];
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ (0xedb88320u & (0u - (sum & 1u)));
  }
  return sum;
}

/* Whether a slot is complete; its number. */
static int is_complete(int slot, uint32_t* number) {
  struct header h;
  unsigned char piece[64];
  if (NAME_flash_read(slot, 0, &h, sizeof h)) return 0;
  if (h.magic != MAGIC || h.bytes != NAME_STORE_BYTES) return 0;
  uint32_t sum = crc(0xffffffffu, &h, sizeof h - sizeof h.check);
  for (uint32_t at = sizeof h; at < NAME_STORE_BYTES; at += sizeof piece) {
    const uint32_t left = NAME_STORE_BYTES - at, bytes = left < sizeof piece ? left : (uint32_t)sizeof piece;
    if (NAME_flash_read(slot, at, piece, bytes)) return 0;
    sum = crc(sum, piece, bytes);
  }
  *number = h.number;
  return sum == h.check;
}

/* The slot that was saved last; -1: none. */
static int last_slot(uint32_t* number) {
  uint32_t numbers[2] = {0, 0};
  const int first = is_complete(0, &numbers[0]), second = is_complete(1, &numbers[1]);
  if (!first && !second) return -1;
  const int slot = first && second ? (int32_t)(numbers[1] - numbers[0]) > 0 : second;
  *number = numbers[slot];
  return slot;
}

int NAME_save(void) {
  struct header h = {MAGIC, 0, NAME_STORE_BYTES, 0};
  const int last = last_slot(&h.number), slot = last == 0;
  uint32_t at = sizeof h;
  ++h.number;
  if (NAME_flash_erase(slot)) return 1;
  h.check = crc(0xffffffffu, &h, sizeof h - sizeof h.check);
  for (uint32_t i = 0; i < PARTS; ++i) {
    if (NAME_flash_write(slot, at, parts[i].data, parts[i].bytes)) return 1;
    h.check = crc(h.check, parts[i].data, parts[i].bytes);
    at += parts[i].bytes;
  }
  return NAME_flash_write(slot, 0, &h, sizeof h);
}

int NAME_load(void) {
  uint32_t number, at = sizeof(struct header);
  const int slot = last_slot(&number);
  if (slot < 0) return 1;
  for (uint32_t i = 0; i < PARTS; ++i) {
    if (NAME_flash_read(slot, at, parts[i].data, parts[i].bytes)) return 1;
    at += parts[i].bytes;
  }
  return 0;
}
"""
_SIZES = {"int8_t": 1, "uint8_t": 1, "int32_t": 4, "float": 4, "int64_t": 8, "double": 8}


def store(name: str, header: str) -> dict[str, str]:
    """The files ``NAME_store.h`` and ``NAME_store.c`` for the variables that a program's header declares."""
    arrays = re.findall(rf"^extern (\w+) ({name}_\w+)\[(\d+)\]", header, re.M)
    variables = [(kind, n, int(count)) for kind, n, count in arrays if n != f"{name}_arena"]
    # widest elements first, so that pieces are aligned in flash memory
    variables.sort(key=lambda v: -_SIZES[v[0]])
    parts = "".join(f"    {{{n}, sizeof {n}}},\n" for _, n, _ in variables)
    total = 16 + sum(_SIZES[kind] * count for kind, _, count in variables)
    upper = name.upper()

    def complete(text: str) -> str:
        return (
            text.replace("NAME_STORE", f"{upper}_STORE").replace("BYTESu", f"{total}u").replace("NAME", name)
        )

    code = complete(_CODE.replace("PARTS};", parts + "};", 1))
    return {f"{name}_store.h": complete(_HEADER), f"{name}_store.c": code}
