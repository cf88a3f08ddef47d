"""Special functions, polynomials and windows, against numbers computed with 50 digits (mpmath) and NumPy."""

import math

import numpy as np
import pytest

import facula as F

# (function, arguments, value)
VALUES = [
    ("i0", (0.0,), 1.0),
    ("i0", (-3.0,), 4.8807925858650245),
    ("i0", (710.5,), 5.513582499475709e306),
    ("i0", (0.01,), 1.0000250001562505),
    ("i0", (0.3,), 1.022626879351597),
    ("i0", (0.99,), 1.2604492607081457),
    ("i0", (1.01,), 1.2717525859257404),
    ("i0", (2.5,), 3.289839144050123),
    ("i0", (7.9,), 389.406283282158),
    ("i0", (8.1,), 469.5006067101215),
    ("i0", (31.9,), 5066850240684.24),
    ("i0", (32.1,), 6169199833768.359),
    ("i0", (600.0,), 6.1463054039368444e258),
    ("special.i1", (0.0,), 0.0),
    ("special.i1", (-3.0,), -3.9533702174026093),
    ("special.i1", (0.01,), 0.005000062500260418),
    ("special.i1", (0.3,), 0.15169384000359276),
    ("special.i1", (0.99,), 0.5581714164778423),
    ("special.i1", (1.01,), 0.5721897329506921),
    ("special.i1", (2.5,), 2.5167162452886984),
    ("special.i1", (7.9,), 363.8539440845084),
    ("special.i1", (8.1,), 439.48430891035844),
    ("special.i1", (31.9,), 4986789595018.576),
    ("special.i1", (32.1,), 6072333457710.658),
    ("special.i1", (600.0,), 6.141181345066892e258),
    ("special.i0e", (-3.0,), 0.2430003541618254),
    ("special.i0e", (100000.0,), 0.0012615678379767768),
    ("special.i0e", (0.01,), 0.9900745851497075),
    ("special.i0e", (0.3,), 0.7575806251825479),
    ("special.i0e", (0.99,), 0.4683535654951166),
    ("special.i0e", (1.01,), 0.4631964291133192),
    ("special.i0e", (2.5,), 0.27004644161220276),
    ("special.i0e", (7.9,), 0.14436986414104191),
    ("special.i0e", (8.1,), 0.14251180948829528),
    ("special.i0e", (31.9,), 0.07091597781154413),
    ("special.i0e", (32.1,), 0.07069292787429185),
    ("special.i0e", (600.0,), 0.01629014665630598),
    ("special.i1e", (-3.0,), -0.19682671329730086),
    ("special.i1e", (100000.0,), 0.0012615615301218171),
    ("special.i1e", (0.01,), 0.004950311047118276),
    ("special.i1e", (0.3,), 0.1123775606398388),
    ("special.i1e", (0.99,), 0.20740348795792476),
    ("special.i1e", (1.01,), 0.2084023606566035),
    ("special.i1e", (2.5,), 0.20658464953126657),
    ("special.i1e", (7.9,), 0.13489649943989376),
    ("special.i1e", (8.1,), 0.13340068832583662),
    ("special.i1e", (31.9,), 0.06979544361339159),
    ("special.i1e", (32.1,), 0.06958293501936624),
    ("special.i1e", (600.0,), 0.016276565868339667),
    ("special.modified_bessel_k0", (0.01,), 4.721244730161095),
    ("special.modified_bessel_k0", (0.3,), 1.3724600605442974),
    ("special.modified_bessel_k0", (0.99,), 0.42709503097965784),
    ("special.modified_bessel_k0", (1.01,), 0.415056144085075),
    ("special.modified_bessel_k0", (2.5,), 0.06234755320036619),
    ("special.modified_bessel_k0", (7.9,), 0.0001628676676876532),
    ("special.modified_bessel_k0", (8.1,), 0.00013173427864935836),
    ("special.modified_bessel_k0", (31.9,), 3.093817460210208e-15),
    ("special.modified_bessel_k0", (32.1,), 2.5251600039040267e-15),
    ("special.modified_bessel_k0", (600.0,), 1.3558285309948523e-262),
    ("special.scaled_modified_bessel_k0", (100000.0,), 0.003963322343474756),
    ("special.scaled_modified_bessel_k0", (0.01,), 4.768694028544462),
    ("special.scaled_modified_bessel_k0", (0.3,), 1.8526273007720142),
    ("special.scaled_modified_bessel_k0", (0.99,), 1.1494128703415314),
    ("special.scaled_modified_bessel_k0", (1.01,), 1.1395785704889894),
    ("special.scaled_modified_bessel_k0", (2.5,), 0.7595486903280996),
    ("special.scaled_modified_bessel_k0", (7.9,), 0.4393000819002152),
    ("special.scaled_modified_bessel_k0", (8.1,), 0.4339943754308567),
    ("special.scaled_modified_bessel_k0", (31.9,), 0.22104905307175193),
    ("special.scaled_modified_bessel_k0", (32.1,), 0.22036457032908377),
    ("special.scaled_modified_bessel_k0", (600.0,), 0.05115568572023596),
    ("special.bessel_j0", (-3.0,), -0.26005195490193345),
    ("special.bessel_j0", (0.01,), 0.9999750001562495),
    ("special.bessel_j0", (0.3,), 0.9776262465382961),
    ("special.bessel_j0", (0.99,), 0.7695818809651686),
    ("special.bessel_j0", (1.01,), 0.7607809776321885),
    ("special.bessel_j0", (2.5,), -0.048383776468198),
    ("special.bessel_j0", (7.9,), 0.19436184484127825),
    ("special.bessel_j0", (8.1,), 0.14751745404437766),
    ("special.bessel_j0", (31.9,), 0.1347298398711664),
    ("special.bessel_j0", (32.1,), 0.14004024116132194),
    ("special.bessel_y0", (0.01,), -3.005455637083646),
    ("special.bessel_y0", (0.3,), -0.8072735778045195),
    ("special.bessel_y0", (0.99,), 0.08040121621363991),
    ("special.bessel_y0", (1.01,), 0.09602576248781666),
    ("special.bessel_y0", (2.5,), 0.4980703596152319),
    ("special.bessel_y0", (7.9,), 0.20652094814437577),
    ("special.bessel_y0", (8.1,), 0.23809132870223482),
    ("special.bessel_y0", (31.9,), -0.04245180263478681),
    ("special.bessel_y0", (32.1,), -0.014789203915565995),
    ("special.modified_bessel_k1", (0.01,), 99.97389411829624),
    ("special.modified_bessel_k1", (0.3,), 3.055992033457325),
    ("special.modified_bessel_k1", (0.99,), 0.6122489779992295),
    ("special.modified_bessel_k1", (1.01,), 0.5917881779729701),
    ("special.modified_bessel_k1", (2.5,), 0.07389081634774707),
    ("special.modified_bessel_k1", (7.9,), 0.00017288430649238984),
    ("special.modified_bessel_k1", (8.1,), 0.00013964122894503082),
    ("special.modified_bessel_k1", (31.9,), 3.141941227146322e-15),
    ("special.modified_bessel_k1", (32.1,), 2.5641954910764936e-15),
    ("special.modified_bessel_k1", (600.0,), 1.356957918112806e-262),
    ("special.scaled_modified_bessel_k1", (100000.0,), 0.003963342160036932),
    ("special.scaled_modified_bessel_k1", (0.01,), 100.97864845824004),
    ("special.scaled_modified_bessel_k1", (0.3,), 4.12515776224447),
    ("special.scaled_modified_bessel_k1", (0.99,), 1.6477055552521314),
    ("special.scaled_modified_bessel_k1", (1.01,), 1.6248142221175983),
    ("special.scaled_modified_bessel_k1", (2.5,), 0.900174423907878),
    ("special.scaled_modified_bessel_k1", (7.9,), 0.4663177847368799),
    ("special.scaled_modified_bessel_k1", (8.1,), 0.4600435707528057),
    ("special.scaled_modified_bessel_k1", (31.9,), 0.2244874308197238),
    ("special.scaled_modified_bessel_k1", (32.1,), 0.2237711023290552),
    ("special.scaled_modified_bessel_k1", (600.0,), 0.05119829772547244),
    ("special.bessel_j1", (-3.0,), -0.3390589585259365),
    ("special.bessel_j1", (0.01,), 0.004999937500260416),
    ("special.bessel_j1", (0.3,), 0.148318816273104),
    ("special.bessel_j1", (0.99,), 0.43678289579482477),
    ("special.bessel_j1", (1.01,), 0.4432857612090717),
    ("special.bessel_j1", (2.5,), 0.49709410246427405),
    ("special.bessel_j1", (7.9,), 0.2191793999217512),
    ("special.bessel_j1", (8.1,), 0.24760776698159287),
    ("special.bessel_j1", (31.9,), -0.04034577349699012),
    ("special.bessel_j1", (32.1,), -0.012610210711016503),
    ("special.bessel_y1", (0.01,), -63.67859628206065),
    ("special.bessel_y1", (0.3,), -2.2931051383885293),
    ("special.bessel_y1", (0.99,), -0.7899515491621414),
    ("special.bessel_y1", (1.01,), -0.7725610528719075),
    ("special.bessel_y1", (2.5,), 0.1459181379667858),
    ("special.bessel_y1", (7.9,), -0.18172107728057313),
    ("special.bessel_y1", (8.1,), -0.13314879595249593),
    ("special.bessel_y1", (31.9,), -0.13541159018598445),
    ("special.bessel_y1", (32.1,), -0.14028750966150183),
    ("special.airy_ai", (0.0,), 0.3550280538878172),
    ("special.airy_ai", (-0.5,), 0.4757280916105396),
    ("special.airy_ai", (-3.3,), -0.41718093737455014),
    ("special.airy_ai", (-5.99,), -0.3255874806297948),
    ("special.airy_ai", (-6.01,), -0.3325053888233103),
    ("special.airy_ai", (-40.5,), 0.03908260279582711),
    ("special.airy_ai", (1.99,), 0.035458538570668385),
    ("special.airy_ai", (2.01,), 0.034396707129894226),
    ("special.airy_ai", (5.5,), 3.368531190859981e-05),
    ("special.airy_ai", (30.0,), 3.2082175915504954e-49),
    ("special.airy_ai", (99.5,), 3.890406233258681e-289),
    ("special.spherical_bessel_j0", (0.0,), 1.0),
    ("special.spherical_bessel_j0", (0.5,), 0.958851077208406),
    ("special.spherical_bessel_j0", (1e-08,), 1.0),
    ("special.spherical_bessel_j0", (9.7,), -0.028016559423808502),
    ("special.ndtri", (0.5,), 0.0),
    ("special.ndtri", (0.3,), -0.5244005127080408),
    ("special.ndtri", (0.25,), -0.6744897501960817),
    ("special.ndtri", (0.2499,), -0.67480447011061),
    ("special.ndtri", (0.9,), 1.2815515655446006),
    ("special.ndtri", (1e-05,), -4.264890793922825),
    ("special.ndtri", (1e-10,), -6.361340902404057),
    ("special.ndtri", (1e-17,), -8.493793224109599),
    ("special.log_ndtr", (-40.0,), -804.6084420137538),
    ("special.log_ndtr", (-5.5,), -17.77937635262526),
    ("special.log_ndtr", (-1.01,), -1.8563130623431785),
    ("special.log_ndtr", (-0.99,), -1.8258103178428124),
    ("special.log_ndtr", (0.0,), -0.6931471805599453),
    ("special.log_ndtr", (3.0,), -0.0013508099647481938),
    ("special.log_ndtr", (9.0,), -1.1285884059538405e-19),
    ("igamma", (0.001, 0.01), 0.9959694030335131),
    ("igamma", (10000.0, 10150.0), 0.9326593784960509),
    ("igamma", (3000.0, 2000.0), 2.287177814973167e-96),
    ("igammac", (10000.0, 10150.0), 0.06734062150394914),
    ("igammac", (500.0, 900.0), 1.837837827970671e-48),
    ("special.airy_ai", (-100000.25,), -0.0028421674078962698),
    ("special.bessel_y1", (1000000.5,), -0.0006385655054760429),
    ("special.zeta", (30.0, 28.5), 3.549830725509231e-44),
    ("igamma", (0.3, 0.2), 0.6575067242697218),
    ("igamma", (0.3, 2.5), 0.9881546781546887),
    ("igamma", (2.5, 0.7), 0.07568672719833305),
    ("igamma", (2.5, 6.0), 0.9652122194937581),
    ("igamma", (9.9, 12.0), 0.7672356360037236),
    ("igamma", (10.1, 8.0), 0.272243234452263),
    ("igamma", (99.0, 99.5), 0.5333377509605268),
    ("igamma", (101.0, 99.0), 0.4336434731874449),
    ("igamma", (101.0, 130.0), 0.9963247892744126),
    ("igamma", (10000.0, 10100.0), 0.8413487504471796),
    ("igamma", (10000.0, 9950.0), 0.3094178848611826),
    ("igammac", (0.001, 0.01), 0.0040305969664868446),
    ("igammac", (0.3, 0.2), 0.34249327573027827),
    ("igammac", (0.3, 2.5), 0.011845321845311337),
    ("igammac", (2.5, 0.7), 0.924313272801667),
    ("igammac", (2.5, 6.0), 0.03478778050624185),
    ("igammac", (9.9, 12.0), 0.23276436399627645),
    ("igammac", (10.1, 8.0), 0.727756765547737),
    ("igammac", (99.0, 99.5), 0.4666622490394732),
    ("igammac", (101.0, 99.0), 0.5663565268125551),
    ("igammac", (101.0, 130.0), 0.0036752107255873696),
    ("igammac", (10000.0, 10100.0), 0.15865124955282037),
    ("igammac", (10000.0, 9950.0), 0.6905821151388174),
    ("special.zeta", (2.0, 1.0), 1.6449340668482264),
    ("special.zeta", (1.5, 0.3), 8.237761671459724),
    ("special.zeta", (1.0001, 4.0), 9998.743960888762),
    ("special.zeta", (9.5, 25.0), 1.8207168634620764e-13),
    ("special.zeta", (30.0, 2.5), 1.1529691685630237e-12),
    ("special.zeta", (2.0, -0.5), 8.934802200544679),
    ("special.zeta", (3.0, -3.25), -61.97760551971101),
    ("special.zeta", (16.0983650182825, 15.001), 1.8421382081029028e-19),
    ("special.zeta", (31.351799433554643, 63.87147818105199), 6.649971481005345e-57),
    ("special.zeta", (1.0562863458847551, 7.001), 15.988654352359966),
    ("special.zeta", (2.0, 7.0), 0.15354517795933756),
    ("special.zeta", (100.0, 0.9), 37648.61949599017),
    ("special.chebyshev_polynomial_t", (-1.7, 0.0), 1.0),
    ("special.chebyshev_polynomial_t", (-1.7, 1.0), -1.7),
    ("special.chebyshev_polynomial_t", (-1.7, 4.0), 44.696799999999996),
    ("special.chebyshev_polynomial_t", (-1.7, 12.0), 357047.6804366048),
    ("special.chebyshev_polynomial_t", (-0.35, 0.0), 1.0),
    ("special.chebyshev_polynomial_t", (-0.35, 1.0), -0.35),
    ("special.chebyshev_polynomial_t", (-0.35, 4.0), 0.1400500000000001),
    ("special.chebyshev_polynomial_t", (-0.35, 12.0), -0.4091622357995003),
    ("special.chebyshev_polynomial_t", (0.2, 0.0), 1.0),
    ("special.chebyshev_polynomial_t", (0.2, 1.0), 0.2),
    ("special.chebyshev_polynomial_t", (0.2, 4.0), 0.6928),
    ("special.chebyshev_polynomial_t", (0.2, 12.0), -0.748302036992),
    ("special.chebyshev_polynomial_t", (0.9, 0.0), 1.0),
    ("special.chebyshev_polynomial_t", (0.9, 1.0), 0.9),
    ("special.chebyshev_polynomial_t", (0.9, 4.0), -0.2311999999999998),
    ("special.chebyshev_polynomial_t", (0.9, 12.0), 0.6441662586879995),
    ("special.chebyshev_polynomial_t", (1.4, 0.0), 1.0),
    ("special.chebyshev_polynomial_t", (1.4, 1.0), 1.4),
    ("special.chebyshev_polynomial_t", (1.4, 4.0), 16.052799999999994),
    ("special.chebyshev_polynomial_t", (1.4, 12.0), 16498.57905407179),
    ("special.shifted_chebyshev_polynomial_t", (-1.7, 0.0), 1.0),
    ("special.shifted_chebyshev_polynomial_t", (-1.7, 1.0), -4.4),
    ("special.shifted_chebyshev_polynomial_t", (-1.7, 4.0), 2844.5968),
    ("special.shifted_chebyshev_polynomial_t", (-1.7, 12.0), 92070839385.53537),
    ("special.shifted_chebyshev_polynomial_t", (-0.35, 0.0), 1.0),
    ("special.shifted_chebyshev_polynomial_t", (-0.35, 1.0), -1.7),
    ("special.shifted_chebyshev_polynomial_t", (-0.35, 4.0), 44.696799999999996),
    ("special.shifted_chebyshev_polynomial_t", (-0.35, 12.0), 357047.6804366048),
    ("special.shifted_chebyshev_polynomial_t", (0.2, 0.0), 1.0),
    ("special.shifted_chebyshev_polynomial_t", (0.2, 1.0), -0.6),
    ("special.shifted_chebyshev_polynomial_t", (0.2, 4.0), -0.8432),
    ("special.shifted_chebyshev_polynomial_t", (0.2, 12.0), 0.13158560972800032),
    ("special.shifted_chebyshev_polynomial_t", (0.9, 0.0), 1.0),
    ("special.shifted_chebyshev_polynomial_t", (0.9, 1.0), 0.8),
    ("special.shifted_chebyshev_polynomial_t", (0.9, 4.0), -0.8431999999999998),
    ("special.shifted_chebyshev_polynomial_t", (0.9, 12.0), 0.13158560972800087),
    ("special.shifted_chebyshev_polynomial_t", (1.4, 0.0), 1.0),
    ("special.shifted_chebyshev_polynomial_t", (1.4, 1.0), 1.7999999999999998),
    ("special.shifted_chebyshev_polynomial_t", (1.4, 4.0), 59.06079999999997),
    ("special.shifted_chebyshev_polynomial_t", (1.4, 12.0), 823881.1733201416),
    ("special.chebyshev_polynomial_u", (-1.7, 0.0), 1.0),
    ("special.chebyshev_polynomial_u", (-1.7, 1.0), -3.4),
    ("special.chebyshev_polynomial_u", (-1.7, 4.0), 99.9536),
    ("special.chebyshev_polynomial_u", (-1.7, 12.0), 798561.4324865472),
    ("special.chebyshev_polynomial_u", (-0.35, 0.0), 1.0),
    ("special.chebyshev_polynomial_u", (-0.35, 1.0), -0.7),
    ("special.chebyshev_polynomial_u", (-0.35, 4.0), -0.22989999999999988),
    ("special.chebyshev_polynomial_u", (-0.35, 12.0), -0.06823703669900033),
    ("special.chebyshev_polynomial_u", (0.2, 0.0), 1.0),
    ("special.chebyshev_polynomial_u", (0.2, 1.0), 0.4),
    ("special.chebyshev_polynomial_u", (0.2, 4.0), 0.5456),
    ("special.chebyshev_polynomial_u", (0.2, 12.0), -0.8837094563840001),
    ("special.chebyshev_polynomial_u", (0.9, 0.0), 1.0),
    ("special.chebyshev_polynomial_u", (0.9, 1.0), 1.8),
    ("special.chebyshev_polynomial_u", (0.9, 4.0), 1.7776000000000005),
    ("special.chebyshev_polynomial_u", (0.9, 12.0), -0.9351246602240015),
    ("special.chebyshev_polynomial_u", (1.4, 0.0), 1.0),
    ("special.chebyshev_polynomial_u", (1.4, 1.0), 2.8),
    ("special.chebyshev_polynomial_u", (1.4, 4.0), 38.945599999999985),
    ("special.chebyshev_polynomial_u", (1.4, 12.0), 40072.88743944597),
    ("special.shifted_chebyshev_polynomial_u", (-1.7, 0.0), 1.0),
    ("special.shifted_chebyshev_polynomial_u", (-1.7, 1.0), -8.8),
    ("special.shifted_chebyshev_polynomial_u", (-1.7, 4.0), 5765.633599999999),
    ("special.shifted_chebyshev_polynomial_u", (-1.7, 12.0), 186615812040.49374),
    ("special.shifted_chebyshev_polynomial_u", (-0.35, 0.0), 1.0),
    ("special.shifted_chebyshev_polynomial_u", (-0.35, 1.0), -3.4),
    ("special.shifted_chebyshev_polynomial_u", (-0.35, 4.0), 99.9536),
    ("special.shifted_chebyshev_polynomial_u", (-0.35, 12.0), 798561.4324865472),
    ("special.shifted_chebyshev_polynomial_u", (0.2, 0.0), 1.0),
    ("special.shifted_chebyshev_polynomial_u", (0.2, 1.0), -1.2),
    ("special.shifted_chebyshev_polynomial_u", (0.2, 4.0), -1.2464),
    ("special.shifted_chebyshev_polynomial_u", (0.2, 12.0), -0.6118929981439996),
    ("special.shifted_chebyshev_polynomial_u", (0.9, 0.0), 1.0),
    ("special.shifted_chebyshev_polynomial_u", (0.9, 1.0), 1.6),
    ("special.shifted_chebyshev_polynomial_u", (0.9, 4.0), -0.1263999999999994),
    ("special.shifted_chebyshev_polynomial_u", (0.9, 12.0), 1.453325357056001),
    ("special.shifted_chebyshev_polynomial_u", (1.4, 0.0), 1.0),
    ("special.shifted_chebyshev_polynomial_u", (1.4, 1.0), 3.5999999999999996),
    ("special.shifted_chebyshev_polynomial_u", (1.4, 4.0), 130.08159999999995),
    ("special.shifted_chebyshev_polynomial_u", (1.4, 12.0), 1814742.9483835408),
    ("special.chebyshev_polynomial_v", (-1.7, 0.0), 1.0),
    ("special.chebyshev_polynomial_v", (-1.7, 1.0), -4.4),
    ("special.chebyshev_polynomial_v", (-1.7, 4.0), 132.45759999999999),
    ("special.chebyshev_polynomial_v", (-1.7, 12.0), 1058275.4042806309),
    ("special.chebyshev_polynomial_v", (-0.35, 0.0), 1.0),
    ("special.chebyshev_polynomial_v", (-0.35, 1.0), -1.7),
    ("special.chebyshev_polynomial_v", (-0.35, 4.0), -1.2869),
    ("special.chebyshev_polynomial_v", (-0.35, 12.0), 0.9058349607309996),
    ("special.chebyshev_polynomial_v", (0.2, 0.0), 1.0),
    ("special.chebyshev_polynomial_v", (0.2, 1.0), -0.6),
    ("special.chebyshev_polynomial_v", (0.2, 4.0), 1.2816),
    ("special.chebyshev_polynomial_v", (0.2, 12.0), -0.20667235942400017),
    ("special.chebyshev_polynomial_v", (0.9, 0.0), 1.0),
    ("special.chebyshev_polynomial_v", (0.9, 1.0), 0.8),
    ("special.chebyshev_polynomial_v", (0.9, 4.0), -0.4543999999999998),
    ("special.chebyshev_polynomial_v", (0.9, 12.0), 0.8196430274559996),
    ("special.chebyshev_polynomial_v", (1.4, 0.0), 1.0),
    ("special.chebyshev_polynomial_v", (1.4, 1.0), 1.7999999999999998),
    ("special.chebyshev_polynomial_v", (1.4, 4.0), 22.59359999999999),
    ("special.chebyshev_polynomial_v", (1.4, 12.0), 23234.09573560727),
    ("special.shifted_chebyshev_polynomial_v", (-1.7, 0.0), 1.0),
    ("special.shifted_chebyshev_polynomial_v", (-1.7, 1.0), -9.8),
    ("special.shifted_chebyshev_polynomial_v", (-1.7, 4.0), 6429.5055999999995),
    ("special.shifted_chebyshev_polynomial_v", (-1.7, 12.0), 208103305825.71158),
    ("special.shifted_chebyshev_polynomial_v", (-0.35, 0.0), 1.0),
    ("special.shifted_chebyshev_polynomial_v", (-0.35, 1.0), -4.4),
    ("special.shifted_chebyshev_polynomial_v", (-0.35, 4.0), 132.45759999999999),
    ("special.shifted_chebyshev_polynomial_v", (-0.35, 12.0), 1058275.4042806309),
    ("special.shifted_chebyshev_polynomial_v", (0.2, 0.0), 1.0),
    ("special.shifted_chebyshev_polynomial_v", (0.2, 1.0), -2.2),
    ("special.shifted_chebyshev_polynomial_v", (0.2, 4.0), -1.9184),
    ("special.shifted_chebyshev_polynomial_v", (0.2, 12.0), -1.8510240112639995),
    ("special.shifted_chebyshev_polynomial_v", (0.9, 0.0), 1.0),
    ("special.shifted_chebyshev_polynomial_v", (0.9, 1.0), 0.6000000000000001),
    ("special.shifted_chebyshev_polynomial_v", (0.9, 4.0), -1.0224),
    ("special.shifted_chebyshev_polynomial_v", (0.9, 12.0), -0.19884932710399905),
    ("special.shifted_chebyshev_polynomial_v", (1.4, 0.0), 1.0),
    ("special.shifted_chebyshev_polynomial_v", (1.4, 1.0), 2.5999999999999996),
    ("special.shifted_chebyshev_polynomial_v", (1.4, 4.0), 90.62559999999995),
    ("special.shifted_chebyshev_polynomial_v", (1.4, 12.0), 1264264.1844594302),
    ("special.chebyshev_polynomial_w", (-1.7, 0.0), 1.0),
    ("special.chebyshev_polynomial_w", (-1.7, 1.0), -2.4),
    ("special.chebyshev_polynomial_w", (-1.7, 4.0), 67.44959999999999),
    ("special.chebyshev_polynomial_w", (-1.7, 12.0), 538847.4606924634),
    ("special.chebyshev_polynomial_w", (-0.35, 0.0), 1.0),
    ("special.chebyshev_polynomial_w", (-0.35, 1.0), 0.30000000000000004),
    ("special.chebyshev_polynomial_w", (-0.35, 4.0), 0.8271000000000001),
    ("special.chebyshev_polynomial_w", (-0.35, 12.0), -1.0423090341290002),
    ("special.chebyshev_polynomial_w", (0.2, 0.0), 1.0),
    ("special.chebyshev_polynomial_w", (0.2, 1.0), 1.4),
    ("special.chebyshev_polynomial_w", (0.2, 4.0), -0.19040000000000007),
    ("special.chebyshev_polynomial_w", (0.2, 12.0), -1.560746553344),
    ("special.chebyshev_polynomial_w", (0.9, 0.0), 1.0),
    ("special.chebyshev_polynomial_w", (0.9, 1.0), 2.8),
    ("special.chebyshev_polynomial_w", (0.9, 4.0), 4.009600000000001),
    ("special.chebyshev_polynomial_w", (0.9, 12.0), -2.6898923479040024),
    ("special.chebyshev_polynomial_w", (1.4, 0.0), 1.0),
    ("special.chebyshev_polynomial_w", (1.4, 1.0), 3.8),
    ("special.chebyshev_polynomial_w", (1.4, 4.0), 55.29759999999998),
    ("special.chebyshev_polynomial_w", (1.4, 12.0), 56911.67914328468),
    ("special.shifted_chebyshev_polynomial_w", (-1.7, 0.0), 1.0),
    ("special.shifted_chebyshev_polynomial_w", (-1.7, 1.0), -7.8),
    ("special.shifted_chebyshev_polynomial_w", (-1.7, 4.0), 5101.7616),
    ("special.shifted_chebyshev_polynomial_w", (-1.7, 12.0), 165128318255.27594),
    ("special.shifted_chebyshev_polynomial_w", (-0.35, 0.0), 1.0),
    ("special.shifted_chebyshev_polynomial_w", (-0.35, 1.0), -2.4),
    ("special.shifted_chebyshev_polynomial_w", (-0.35, 4.0), 67.44959999999999),
    ("special.shifted_chebyshev_polynomial_w", (-0.35, 12.0), 538847.4606924634),
    ("special.shifted_chebyshev_polynomial_w", (0.2, 0.0), 1.0),
    ("special.shifted_chebyshev_polynomial_w", (0.2, 1.0), -0.19999999999999996),
    ("special.shifted_chebyshev_polynomial_w", (0.2, 4.0), -0.5743999999999999),
    ("special.shifted_chebyshev_polynomial_w", (0.2, 12.0), 0.6272380149760003),
    ("special.shifted_chebyshev_polynomial_w", (0.9, 0.0), 1.0),
    ("special.shifted_chebyshev_polynomial_w", (0.9, 1.0), 2.6),
    ("special.shifted_chebyshev_polynomial_w", (0.9, 4.0), 0.7696000000000011),
    ("special.shifted_chebyshev_polynomial_w", (0.9, 12.0), 3.105500041216001),
    ("special.shifted_chebyshev_polynomial_w", (1.4, 0.0), 1.0),
    ("special.shifted_chebyshev_polynomial_w", (1.4, 1.0), 4.6),
    ("special.shifted_chebyshev_polynomial_w", (1.4, 4.0), 169.53759999999994),
    ("special.shifted_chebyshev_polynomial_w", (1.4, 12.0), 2365221.7123076515),
    ("special.hermite_polynomial_h", (-1.7, 0.0), 1.0),
    ("special.hermite_polynomial_h", (-1.7, 1.0), -3.4),
    ("special.hermite_polynomial_h", (-1.7, 4.0), 6.9135999999999935),
    ("special.hermite_polynomial_h", (-1.7, 12.0), -1352050.0051535415),
    ("special.hermite_polynomial_h", (-0.35, 0.0), 1.0),
    ("special.hermite_polynomial_h", (-0.35, 1.0), -0.7),
    ("special.hermite_polynomial_h", (-0.35, 4.0), 6.360100000000001),
    ("special.hermite_polynomial_h", (-0.35, 12.0), -125720.64677259952),
    ("special.hermite_polynomial_h", (0.2, 0.0), 1.0),
    ("special.hermite_polynomial_h", (0.2, 1.0), 0.4),
    ("special.hermite_polynomial_h", (0.2, 4.0), 10.105599999999999),
    ("special.hermite_polynomial_h", (0.2, 12.0), 366784.274533974),
    ("special.hermite_polynomial_h", (0.9, 0.0), 1.0),
    ("special.hermite_polynomial_h", (0.9, 1.0), 1.8),
    ("special.hermite_polynomial_h", (0.9, 4.0), -16.3824),
    ("special.hermite_polynomial_h", (0.9, 12.0), -234100.51491561052),
    ("special.hermite_polynomial_h", (1.4, 0.0), 1.0),
    ("special.hermite_polynomial_h", (1.4, 1.0), 2.8),
    ("special.hermite_polynomial_h", (1.4, 4.0), -20.614400000000003),
    ("special.hermite_polynomial_h", (1.4, 12.0), 1464550.098348016),
    ("special.hermite_polynomial_he", (-1.7, 0.0), 1.0),
    ("special.hermite_polynomial_he", (-1.7, 1.0), -1.7),
    ("special.hermite_polynomial_he", (-1.7, 4.0), -5.9879),
    ("special.hermite_polynomial_he", (-1.7, 12.0), 20566.45165311636),
    ("special.hermite_polynomial_he", (-0.35, 0.0), 1.0),
    ("special.hermite_polynomial_he", (-0.35, 1.0), -0.35),
    ("special.hermite_polynomial_he", (-0.35, 4.0), 2.28000625),
    ("special.hermite_polynomial_he", (-0.35, 12.0), 3509.4790684209756),
    ("special.hermite_polynomial_he", (0.2, 0.0), 1.0),
    ("special.hermite_polynomial_he", (0.2, 1.0), 0.2),
    ("special.hermite_polynomial_he", (0.2, 4.0), 2.7616),
    ("special.hermite_polynomial_he", (0.2, 12.0), 7982.476754845696),
    ("special.hermite_polynomial_he", (0.9, 0.0), 1.0),
    ("special.hermite_polynomial_he", (0.9, 1.0), 0.9),
    ("special.hermite_polynomial_he", (0.9, 4.0), -1.2039000000000002),
    ("special.hermite_polynomial_he", (0.9, 12.0), -12773.161300660118),
    ("special.hermite_polynomial_he", (1.4, 0.0), 1.0),
    ("special.hermite_polynomial_he", (1.4, 1.0), 1.4),
    ("special.hermite_polynomial_he", (1.4, 4.0), -4.918399999999999),
    ("special.hermite_polynomial_he", (1.4, 12.0), 3520.6717111336907),
    ("special.laguerre_polynomial_l", (-1.7, 0.0), 1.0),
    ("special.laguerre_polynomial_l", (-1.7, 1.0), 2.7),
    ("special.laguerre_polynomial_l", (-1.7, 4.0), 20.0933375),
    ("special.laguerre_polynomial_l", (-1.7, 12.0), 601.2427487659918),
    ("special.laguerre_polynomial_l", (-0.35, 0.0), 1.0),
    ("special.laguerre_polynomial_l", (-0.35, 1.0), 1.35),
    ("special.laguerre_polynomial_l", (-0.35, 4.0), 2.79670859375),
    ("special.laguerre_polynomial_l", (-0.35, 12.0), 11.161214702111433),
    ("special.laguerre_polynomial_l", (0.2, 0.0), 1.0),
    ("special.laguerre_polynomial_l", (0.2, 1.0), 0.8),
    ("special.laguerre_polynomial_l", (0.2, 4.0), 0.3147333333333333),
    ("special.laguerre_polynomial_l", (0.2, 12.0), -0.3423651803085494),
    ("special.laguerre_polynomial_l", (0.9, 0.0), 1.0),
    ("special.laguerre_polynomial_l", (0.9, 1.0), 0.09999999999999998),
    ("special.laguerre_polynomial_l", (0.9, 4.0), -0.6286625),
    ("special.laguerre_polynomial_l", (0.9, 12.0), 0.44673963227831026),
    ("special.laguerre_polynomial_l", (1.4, 0.0), 1.0),
    ("special.laguerre_polynomial_l", (1.4, 1.0), -0.3999999999999999),
    ("special.laguerre_polynomial_l", (1.4, 4.0), -0.38926666666666676),
    ("special.laguerre_polynomial_l", (1.4, 12.0), 0.1788567884520503),
    ("special.legendre_polynomial_p", (-1.7, 0.0), 1.0),
    ("special.legendre_polynomial_p", (-1.7, 1.0), -1.7),
    ("special.legendre_polynomial_p", (-1.7, 4.0), 26.077937499999997),
    ("special.legendre_polynomial_p", (-1.7, 12.0), 122032.05499103924),
    ("special.legendre_polynomial_p", (-0.35, 0.0), 1.0),
    ("special.legendre_polynomial_p", (-0.35, 1.0), -0.35),
    ("special.legendre_polynomial_p", (-0.35, 4.0), -0.01872265624999996),
    ("special.legendre_polynomial_p", (-0.35, 12.0), -0.05518018536542612),
    ("special.legendre_polynomial_p", (0.2, 0.0), 1.0),
    ("special.legendre_polynomial_p", (0.2, 1.0), 0.2),
    ("special.legendre_polynomial_p", (0.2, 4.0), 0.23199999999999998),
    ("special.legendre_polynomial_p", (0.2, 12.0), -0.18513690214400003),
    ("special.legendre_polynomial_p", (0.9, 0.0), 1.0),
    ("special.legendre_polynomial_p", (0.9, 1.0), 0.9),
    ("special.legendre_polynomial_p", (0.9, 4.0), 0.20793750000000014),
    ("special.legendre_polynomial_p", (0.9, 12.0), 0.04074871427242068),
    ("special.legendre_polynomial_p", (1.4, 0.0), 1.0),
    ("special.legendre_polynomial_p", (1.4, 1.0), 1.4),
    ("special.legendre_polynomial_p", (1.4, 4.0), 9.831999999999997),
    ("special.legendre_polynomial_p", (1.4, 12.0), 5889.03192723865),
]
# What is allowed beside the value, in units of 2^-52 of it or of this number if that is larger: near their
# zeros oscillating functions are exact to their amplitude.
UNITS = {"special.airy_ai": (8, 0.3), "special.bessel_j": (8, 0.3), "special.bessel_y": (8, 0.3)}


def function(name):
    return getattr(F.special, name[8:]) if name.startswith("special.") else getattr(F, name)


def bound(name):
    for start, (units, scale) in UNITS.items():
        if name.startswith(start):
            return units, scale
    return (64, 0.5) if "polynomial" in name else (24, 0)


def test_bessel_functions_of_the_largest_numbers_are_not_zero():
    x = F.tensor(1.7e308, dtype=F.float64)
    assert math.isclose(F.special.bessel_j0(x).item(), 9.01255881646117e-156, rel_tol=1e-14)


# At and near their zeros, and on either side of the pieces.
ZEROS = {
    "bessel_j0": {
        2.404825557695773: -6.10876525973673e-17,
        2.4048: 1.3268284301171568e-05,
        -5.520078110286311: -2.7522649432621832e-17,
        4.999999999999999: -0.1775967713143386,
        7.999999999999999: 0.17165080713755412,
    },
    "bessel_j1": {
        3.8317059702075125: -6.149807356994906e-17,
        -3.83: -0.000687248220597037,
        7.015586669815619: 2.825339409478929e-17,
        5.0: -0.32757913759146523,
        2.0: 0.5767248077568734,
    },
    "bessel_y0": {
        3.957678419314858: -4.3331064642935194e-17,
        3.9577: -8.687122970341427e-06,
        7.086051060301773: 2.651448172550504e-17,
        5.0: -0.30851762524903376,
        2.0: 0.5103756726497451,
    },
    "bessel_y1": {
        2.197141326031017: 2.513306678922122e-17,
        2.2: 0.0014877892897633682,
        5.429681040794135: 1.4165786380203692e-16,
        7.999999999999999: -0.15806046173124771,
        2.0: -0.10703243154093754,
    },
}


@pytest.mark.parametrize("name", sorted(ZEROS))
def test_bessel_functions_have_their_digits_near_their_first_zeros(name):
    x = F.tensor(list(ZEROS[name]), dtype=F.float64)
    want = list(ZEROS[name].values())
    np.testing.assert_allclose(getattr(F.special, name)(x).numpy(), want, rtol=8 * 2.0**-52)


@pytest.mark.parametrize("name", ["bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "zeta"])
def test_lanes_have_the_bits_of_numbers_by_themselves(name):
    special = [
        0.0,
        -0.0,
        5e-324,
        -5e-324,
        2.0,
        1.9999999,
        -2.0,
        5.0,
        -5.0,
        8.0,
        524287.0,
        1e6,
        1e13,
        1.7e308,
        math.inf,
        -math.inf,
        math.nan,
    ]
    x = F.cat([F.linspace(-30, 30, 241, dtype=F.float64), F.tensor(special, dtype=F.float64)])
    x = x[F.randperm(len(x))]
    others = [x.flip(0)] if name == "zeta" else []
    f = getattr(F.special, name)
    single = [f(x[k], *(y[k] for y in others)).item() for k in range(len(x))]
    assert np.array_equal(f(x, *others).numpy(), np.array(single), equal_nan=True)


@pytest.mark.parametrize("name", sorted({v[0] for v in VALUES}))
def test_value_is_within_a_few_units_of_the_last_place(name):
    points = [(x, y) for n, x, y in VALUES if n == name]
    arguments = [np.array(column) for column in zip(*(p[0] for p in points))]
    want = np.array([p[1] for p in points])
    got = function(name)(*(F.from_numpy(a) for a in arguments)).numpy()
    units, scale = bound(name)
    assert np.all(np.abs(got - want) <= units * 2.0**-52 * np.maximum(np.abs(want), scale)), (
        arguments,
        got,
        want,
    )
    small = [a.astype(np.float32) for a in arguments]
    single = function(name)(*(F.from_numpy(a) for a in small)).numpy()
    again = function(name)(*(F.from_numpy(a.astype(np.float64)) for a in small)).numpy()
    np.testing.assert_array_equal(single, again.astype(np.float32), err_msg="float64 rounded once")


def test_orders_are_rounded_to_zero_and_negative_ones_give_nothing():
    n = F.tensor([-1.0, -0.5, 2.7, math.nan, math.inf, -3.0], dtype=F.float64)
    assert F.special.legendre_polynomial_p(0.5, n).tolist() == [0.0, 1.0, -0.125, 0.0, 0.0, 0.0]
    assert F.special.chebyshev_polynomial_t(F.tensor(0.5), 2).item() == -0.5


def test_ndtri_reaches_the_smallest_numbers():
    p = F.tensor([0.0, 5e-324, 1e-300, 1 - 2.0**-53, 1.0, -0.1, 1.1, math.nan], dtype=F.float64)
    got = F.special.ndtri(p).numpy()
    want = [-math.inf, -38.467405617144346, -37.0470962993612, 8.209536151601387, math.inf] + 3 * [math.nan]
    np.testing.assert_allclose(got, want, rtol=1e-15)


def test_divisors_by_hand():
    a, b = F.tensor([12, -18, 0, 7, -(2**62)]), F.tensor([18, 12, 5, 0, 3 * 2**60])
    assert F.gcd(a, b).tolist() == [6, 6, 5, 7, 2**60]
    assert F.lcm(a[:4], b[:4]).tolist() == [36, 36, 0, 0]
    big = np.random.RandomState(0).randint(-(2**62), 2**62, (2, 1000))
    np.testing.assert_array_equal(F.gcd(F.from_numpy(big[0]), F.from_numpy(big[1])).numpy(), np.gcd(*big))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_neighbours_and_parts_agree_with_numpy_for_every_exponent(dtype):
    bits = {np.float16: np.uint16, np.float32: np.uint32, np.float64: np.uint64}[dtype]
    random = np.random.RandomState(1)
    x = random.randint(0, np.iinfo(bits).max, 4000, dtype=bits).view(dtype)
    x = np.concatenate(
        [x, [0, -0.0, np.inf, -np.inf, 1, -1, np.finfo(dtype).max, np.finfo(dtype).tiny]]
    ).astype(dtype)
    x[:40] = [math.ldexp(1, e) for e in range(-20, 20)]
    x[40:60] = np.nextafter(dtype(0), dtype(1)) * np.arange(1, 21)
    y = random.permutation(x)
    got = F.nextafter(F.from_numpy(x), F.from_numpy(y)).numpy()
    np.testing.assert_array_equal(got, np.nextafter(x, y))
    mantissa, exponent = F.frexp(F.from_numpy(x))
    want = np.frexp(x)
    finite = np.isfinite(x)
    np.testing.assert_array_equal(mantissa.numpy(), want[0])
    np.testing.assert_array_equal(exponent.numpy()[finite], want[1][finite])


@pytest.mark.parametrize("name", ["bartlett", "blackman", "hamming", "hann"])
def test_windows_agree_with_numpy(name):
    windows = F.signal.windows
    numpy = {"hann": np.hanning, "bartlett": np.bartlett, "blackman": np.blackman, "hamming": np.hamming}[
        name
    ]
    for m in (1, 2, 7, 8):
        np.testing.assert_allclose(getattr(windows, name)(m, dtype=F.float64).numpy(), numpy(m), atol=1e-15)
        periodic = getattr(windows, name)(m, sym=False, dtype=F.float64).numpy()
        np.testing.assert_allclose(periodic, numpy(m + 1)[:m] if m > 1 else [1.0], atol=1e-15)
        old = getattr(F, name + "_window")(m, dtype=F.float64).numpy()
        np.testing.assert_allclose(old, periodic, atol=1e-15)
    kaiser = F.kaiser_window(9, False, 5.0, dtype=F.float64).numpy()
    np.testing.assert_allclose(kaiser, np.kaiser(9, 5.0), rtol=1e-14)


def test_windows_refuse_what_they_cannot_make():
    for wrong in ({"M": -1}, {"M": 3, "dtype": F.int64}, {"M": 3, "std": -1.0}):
        with pytest.raises(ValueError):
            F.signal.windows.gaussian(**wrong)
    with pytest.raises(RuntimeError, match="non-negative"):
        F.hann_window(-1)


def normal(x):
    return F.special.ndtr(F.from_numpy(x)).numpy()


@pytest.mark.parametrize(
    "fill, distribution",
    [
        (lambda t: t.exponential_(2.0), lambda x: -np.expm1(-2 * x)),
        (lambda t: t.cauchy_(1.0, 3.0), lambda x: np.arctan((x - 1) / 3) / np.pi + 0.5),
        (
            lambda t: t.log_normal_(0.5, 0.7),
            lambda x: normal((np.log(x) - 0.5) / 0.7),
        ),
        (lambda t: t.geometric_(0.3), None),
    ],
)
def test_random_numbers_follow_their_distribution(fill, distribution):
    """The test of Kolmogorov and Smirnov at a level of 1e-6; of whole numbers the frequencies."""
    F.manual_seed(3)
    n = 40_000
    x = np.sort(fill(F.empty(n, dtype=F.float64)).numpy())
    if distribution is None:
        assert x[0] == 1
        for k in range(1, 9):
            p = 0.3 * 0.7 ** (k - 1)
            assert abs(np.mean(x == k) - p) < 6 * math.sqrt(p / n)
        return
    at = distribution(x)
    steps = np.arange(n)
    assert max(np.max(at - steps / n), np.max((steps + 1) / n - at)) < 2.7 / math.sqrt(n)
