/* Starts a program on a Cortex-M: initial stack and reset vector, the FPU, and the initial values of variables. The C library's
   own start (newlib's semihosting) clears the rest and calls main(). */
#include <stdint.h>

extern uint32_t data_image[], data_start[], data_end[], stack_top[];
void _start(void);
void reset(void);

static void stop(void) {
  for (;;) {
  }
}

volatile uint32_t systick_rounds;
static void count_round(void) { ++systick_rounds; }

__attribute__((section(".vectors"), used)) static const void* const vectors[16] = {
    stack_top, (const void*)reset, (const void*)stop, (const void*)stop, (const void*)stop, (const void*)stop,
    (const void*)stop, [15] = (const void*)count_round};

void reset(void) {
  *(volatile uint32_t*)0xE000ED88 |= 0xFu << 20; /* CPACR: full access to the FPU, if there is one */
  __asm__ volatile("dsb\n isb");
  for (uint32_t *to = data_start, *from = data_image; to < data_end;) *to++ = *from++;
  _start();
  stop();
}
