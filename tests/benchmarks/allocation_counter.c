/* Counts every block that a process takes from malloc or from TensorFlow's allocator, at each call.

   Build: cc -O2 -shared -fPIC -o allocation_counter.so allocation_counter.c -ldl
   Use:   LD_PRELOAD=./allocation_counter.so TENSORFLOW=.../libtensorflow_framework.so.2 python ...

   The methods of tsl::BFCAllocator are found through its table of virtual methods, whose entries the
   linker resolves to this library first. What it counts of a tensor is the whole chunk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static _Atomic long live, highest;
static __thread int inside;

static void change(long bytes) {
  long now = atomic_fetch_add(&live, bytes) + bytes, known = atomic_load(&highest);
  while (now > known && !atomic_compare_exchange_weak(&highest, &known, now)) {
  }
}
static void *taken(void *block) {
  if (block) change((long)malloc_usable_size(block));
  return block;
}
static void given_back(void *block) {
  if (block) change(-(long)malloc_usable_size(block));
}
void *malloc(size_t size) { return taken(__libc_malloc(size)); }
void *calloc(size_t count, size_t size) { return taken(__libc_calloc(count, size)); }
void *memalign(size_t alignment, size_t size) { return taken(__libc_memalign(alignment, size)); }
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
void free(void *block) {
  given_back(block);
  __libc_free(block);
}
void *realloc(void *block, size_t size) {
  long before = block ? (long)malloc_usable_size(block) : 0;
  void *moved = __libc_realloc(block, size);
  if (moved || !size) change(-before);
  return taken(moved);
}
int posix_memalign(void **block, size_t alignment, size_t size) {
  void *found = memalign(alignment, size);
  if (!found) return ENOMEM;
  *block = found;
  return 0;
}

static void *method(const char *name) {
  static void *tensorflow;
  inside++;
  if (!tensorflow) tensorflow = dlopen(getenv("TENSORFLOW"), RTLD_NOW | RTLD_NOLOAD);
  void *found = tensorflow ? dlsym(tensorflow, name) : NULL;
  inside--;
  if (!found) abort();
  return found;
}
static long chunk_bytes(void *allocator, void *chunk) {
  static size_t (*size_of)(void *, const void *);
  if (!size_of) size_of = method("_ZNK3tsl12BFCAllocator13AllocatedSizeEPKv");
  return chunk ? (long)size_of(allocator, chunk) : 0;
}
void *_ZN3tsl12BFCAllocator11AllocateRawEmm(void *allocator, size_t alignment, size_t size) {
  static void *(*allocate)(void *, size_t, size_t);
  if (!allocate) allocate = method("_ZN3tsl12BFCAllocator11AllocateRawEmm");
  inside++;
  void *chunk = allocate(allocator, alignment, size);
  if (!--inside) change(chunk_bytes(allocator, chunk));
  return chunk;
}
void *_ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE(
    void *allocator, size_t alignment, size_t size, const void *attributes) {
  static void *(*allocate)(void *, size_t, size_t, const void *);
  if (!allocate)
    allocate = method("_ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE");
  inside++;
  void *chunk = allocate(allocator, alignment, size, attributes);
  if (!--inside) change(chunk_bytes(allocator, chunk));
  return chunk;
}
void _ZN3tsl12BFCAllocator13DeallocateRawEPv(void *allocator, void *chunk) {
  static void (*deallocate)(void *, void *);
  if (!deallocate) deallocate = method("_ZN3tsl12BFCAllocator13DeallocateRawEPv");
  if (!inside) change(-chunk_bytes(allocator, chunk));
  inside++;
  deallocate(allocator, chunk);
  inside--;
}

long counter_live(void) { return live; }
long counter_highest(void) { return highest; }
void counter_reset(void) { highest = live; }
