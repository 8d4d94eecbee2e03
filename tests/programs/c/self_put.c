/* SPDX-License-Identifier: BSD-3-Clause */
/* self_put.c - no MPI: puts to itself; for programs that find the library in other ways.
 * It is C and C++. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <utofu.h>

#ifdef BY_DLOPEN
#include <dlfcn.h>

/* the same names, found at run time */
#define RESOLVE(name) __typeof__(&name) name##_p = (__typeof__(&name))(uintptr_t)dlsym(library, #name)
#define F(name)       name##_p
#else
#define RESOLVE(name) (void)0
#define F(name)       name
#endif

static int run(void *library)
{
    utofu_tni_id_t         *tnis = NULL;
    size_t                  count = 0;
    utofu_vcq_hdl_t         vcq;
    utofu_vcq_id_t          id;
    utofu_stadd_t           from, to;
    uint64_t                source = 0x1234567890abcdefu, target = 0;
    struct utofu_mrq_notice notice;
    void                   *cbdata = NULL;
    int                     code;

    RESOLVE(utofu_get_onesided_tnis);
    RESOLVE(utofu_create_vcq);
    RESOLVE(utofu_query_vcq_id);
    RESOLVE(utofu_reg_mem);
    RESOLVE(utofu_put);
    RESOLVE(utofu_poll_tcq);
    RESOLVE(utofu_poll_mrq);
    RESOLVE(utofu_free_vcq);
    (void)library;

    if ((F(utofu_get_onesided_tnis)(&tnis, &count) != UTOFU_SUCCESS) || (count == 0)) {
        fprintf(stderr, "no TNI\n");
        return 10;
    }
    if ((F(utofu_create_vcq)(tnis[0], 0, &vcq) != UTOFU_SUCCESS) || (F(utofu_query_vcq_id)(vcq, &id) != UTOFU_SUCCESS) ||
        (F(utofu_reg_mem)(vcq, &source, sizeof(source), 0, &from) != UTOFU_SUCCESS) ||
        (F(utofu_reg_mem)(vcq, &target, sizeof(target), 0, &to) != UTOFU_SUCCESS) ||
        (F(utofu_put)(vcq, id, from, to, sizeof(source), 9,
                      UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE,
                      &source) != UTOFU_SUCCESS)) {
        return 11;
    }
    free(tnis);
    while ((code = F(utofu_poll_tcq)(vcq, 0, &cbdata)) == UTOFU_ERR_NOT_FOUND) {
    }
    if ((code != UTOFU_SUCCESS) || (cbdata != &source)) {
        return 12;
    }
    while ((code = F(utofu_poll_mrq)(vcq, 0, &notice)) == UTOFU_ERR_NOT_FOUND) {
    }
    if ((code != UTOFU_SUCCESS) || (notice.edata != 9) || (*(volatile uint64_t *)&target != source)) {
        return 13;
    }
    if (F(utofu_free_vcq)(vcq) != UTOFU_SUCCESS) {
        return 14;
    }
    printf("self_put ok\n");
    return 0;
}

int main(int argc, char **argv)
{
    void *library = NULL;

#ifdef BY_DLOPEN
    library = dlopen((argc > 1) ? argv[1] : "libtofucom.so", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 9;
    }
#else
    (void)argc;
    (void)argv;
#endif
    return run(library);
}
