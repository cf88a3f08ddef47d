/* Counts instructions with SysTick (QEMU's -icount shift=0: a tick of mps2-an500 is 40 instructions), whose interrupt counts its
   rounds, and finds the depth of the stack by painting it. On other machines both are 0. */
#include <stdint.h>

#if defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M'
#define SYSTICK ((volatile uint32_t*)0xE000E010)
#define PAINTED 24576
extern volatile uint32_t systick_rounds; /* startup.c */
static uint32_t measured_ticks, measured_stack;
static volatile uint8_t* low;
static void measure_start(void) {
  low = (volatile uint8_t*)__builtin_frame_address(0) - PAINTED;
  for (int i = 0; i < PAINTED - 256; ++i) low[i] = 0xA5;
  SYSTICK[1] = 0xFFFFFF;
  SYSTICK[2] = 0;
  systick_rounds = 0;
  SYSTICK[0] = 7;
}
static void measure_stop(void) {
  SYSTICK[0] = 5;
  measured_ticks = (systick_rounds << 24) + (0xFFFFFF - SYSTICK[2]);
  SYSTICK[0] = 0;
  int i = 0;
  while (i < PAINTED - 256 && low[i] == 0xA5) ++i;
  measured_stack = (uint32_t)(PAINTED - i);
}
#else
static uint32_t measured_ticks, measured_stack;
static void measure_start(void) {}
static void measure_stop(void) {}
#endif
